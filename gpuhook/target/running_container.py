# SPDX-License-Identifier: Apache-2.0
"""A running container, open, with its grant, and the report of a change.

`attach`, `detach`, `repair` and `inspect` start with it. It reads the container's file systems,
which may never answer: container_worker.py gives this work a deadline.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import Any

from gpuhook.apply.live import hotplug_plan, interrupted_attach
from gpuhook.apply.live.live_injection import LiveRecord
from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import ledger_changes, membership
from gpuhook.errors import fault
from gpuhook.host.interrupt import Interruptible
from gpuhook.kernel.namespaces import is_initial_user_namespace
from gpuhook.vendors.warm import config_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.live.live_injection import InjectedItems
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.containers.warm.process_handle import Process
    from gpuhook.containers.warm.runtime_state import Found

# Faults of a container that ends before it is read: a command for all containers continues.
GONE = ("GH1730", "GH1732", "GH1738")


class Target:
    """A container: its runtime's state, its config.json, its ledger entry, and the open container.

    `by_config` are the edits of config.json, `given` those of a later attach, `made` the items that
    were created for these, `withdrawn` the nodes that were removed from the former, `denied` those
    that may be denied without a visible rule. `cgroup` is the name of its cgroup, as Found has it.
    `recorded` is also the ledger entry of a container that was assigned nothing and has only
    warnings.
    """

    def __init__(
        self, found: Found, spec: dict[str, Any], held: Live, cgroup: str | None = None
    ) -> None:
        self.found = found
        self.spec = spec
        self.held = held
        self.cgroup = cgroup
        entry = ledger_changes.find_entry(found.state_root, found.id, found.pid)
        self.recorded: dict[str, Any] = entry or {}
        self.entry = self.recorded if ledger.is_holder(self.recorded) else {}
        record = LiveRecord(self.entry.get("live"))
        self.by_config = config_devices.by_config(spec, self.entry.get("nodes") or ())
        self.given = config_devices.renewed(record.edits)
        self.jobs = [hook_args.parse(args) for args in record.jobs]
        self.made = record.made
        if record.coming is not None:
            self.made.add(
                interrupted_attach.made_by_attach(held, self.given, self.made, record.coming)
            )
        self.withdrawn = [str(path) for path in self.entry.get("withdrawn") or ()]
        # An attach was killed that was to allow them again.
        begun = self.entry.get("nodes") or () if record.coming is not None else ()
        self.denied = [*self.withdrawn, *begun]

    def record(
        self, edits: ContainerEdits, todo: Sequence[Jobs] = (), coming: InjectedItems | None = None
    ) -> dict[str, Any]:
        """Return the ledger's record after the container gets `edits` and `todo` as well.

        Edits of config.json are not included. `coming` is for the record before the change, so that
        a process that is killed meanwhile leaves a trace.
        """
        later = config_devices.with_numbers(config_devices.besides(edits, self.by_config))
        arguments = [job.arguments() for job in [*self.jobs, *todo]]
        record = LiveRecord()
        record.edits = merged([self.given, later])
        record.jobs = [one for n, one in enumerate(arguments) if one not in arguments[:n]]
        record.made, record.coming = self.made, coming
        return record.document()

    @property
    def granted(self) -> ContainerEdits:
        """Return all edits that the container is to have now."""
        whole = config_devices.without(merged([self.by_config, self.given]), self.withdrawn)
        nodes = {node["path"]: node for node in whole.get("deviceNodes") or ()}
        if nodes:
            whole["deviceNodes"] = list(nodes.values())
        return whole

    @property
    def all_jobs(self) -> list[Jobs]:
        """Return the jobs of the hook that an engine added, and of later attaches."""
        return [hook_args.of_hook(hook) for hook in hook_args.hooks_in(self.spec)] + self.jobs

    def note(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the container's entry in the ledger; raises OSError."""

        def changed(entry: dict[str, Any]) -> dict[str, Any] | None:
            if not entry.get("route"):  # it is new, or has warnings only
                nodes = config_devices.by_config(self.spec).get("deviceNodes") or ()
                entry |= ledger.new_entry(
                    self.spec.get("annotations"),
                    self.found.bundle,
                    "attach",
                    nodes=[node["path"] for node in nodes],
                    replicas=(),
                    runtime=self.found.runtime,
                )
            change(entry)
            return entry or None

        process = self.held.process
        ledger_changes.update(
            self.found.state_root, self.found.id, (process.pid, process.started), changed
        )


class ContainerNote:
    """An operation of a plan that changes the ledger's entry; without it, the plan fails."""

    def __init__(self, target: Target, change: Callable[[dict[str, Any]], None]) -> None:
        self._target = target
        self._change = change
        self._before = target.recorded

    def describe(self) -> list[str]:
        """Return nothing: the container does not change."""
        return []

    def execute(self, live: Live) -> None:  # noqa: ARG002 # an operation's signature
        """Write the entry."""
        self._target.note(self._change)

    def undo(self, live: Live) -> None:  # noqa: ARG002 # an operation's signature
        """Restore the entry."""

        def restored(entry: dict[str, Any]) -> None:
            entry.clear()
            entry.update(self._before)

        self._target.note(restored)


def require_ours(found: Found) -> None:
    """Raise GH1756 for another user's container: root does not act on that user's files."""
    if not found.is_ours:
        raise fault("GH1756", id=found.id, user=found.owner)


@contextmanager
def hold(found: Found, *, to_change: bool = False) -> Iterator[Target]:
    """Yield the running container `found`; GH1738 if it is stopped.

    With `to_change`, the caller has the container's lock (ledger_changes.Changing), and has called
    require_ours().
    """
    spec = _config(found) if found.is_ours else {}
    with found.process() as process:
        if process.namespace("mnt") in membership.host_namespaces("mnt"):
            raise fault("GH1737", pid=process.pid)
        cgroup = found.cgroup
        if cgroup is None and not membership.has_own_cgroup(process):
            cgroup = ""
        with ExitStack() as stack:
            signals = stack.enter_context(Interruptible()) if to_change else None
            container = stack.enter_context(hotplug_plan.open_live(process, "/", spec, cgroup))
            container.require_users = lambda: _require_users_of_config(process, spec)
            if signals is not None:
                container.signals = signals
            yield Target(found, spec, container, cgroup)


def _require_users_of_config(process: Process, spec: dict[str, Any]) -> None:
    """Raise GH1748 for a process in a user namespace that config.json does not have.

    In its own user namespace, the process can make a mount namespace with a root of its choice.
    """
    if not spec or oci_spec.user_namespace(spec) or process.in_initial_user_namespace():
        return
    ours = os.stat("/proc/self/ns/user")
    if os.geteuid() == 0 and is_initial_user_namespace(ours.st_ino):
        raise fault("GH1748", pid=process.pid)


def _config(found: Found) -> dict[str, Any]:
    """Return the container's config.json, {} where its engine has removed the bundle."""
    try:
        return found.config()
    except FileNotFoundError:
        return {}


class Report:
    """What attach, detach or repair did to a container, or would do.

    `steps` are the changes, `skipped` those that are not possible, `left` the items to remove that
    the container kept. With `is_dry` nothing was changed.
    """

    def __init__(self, target: Target, plan: HotplugPlan, *, is_dry: bool) -> None:
        self.id = target.found.id
        self.pid = target.held.process.pid
        self.is_dry = is_dry
        self.steps = plan.describe()
        self.skipped = list(plan.skipped)
        self.notes: list[str] = []
        self.left: list[str] = []

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "container": self.id,
            "pid": self.pid,
            "dryRun": self.is_dry,
            "steps": self.steps,
            "skipped": self.skipped,
            "left": self.left,
            "notes": self.notes,
        }
