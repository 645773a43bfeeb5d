# SPDX-License-Identifier: Apache-2.0
"""`create` and `run`: a bundle's config.json is edited so that the container gets its GPUs.

request -> policy -> resolve -> ContainerEdits -> apply, and the jobs in the root file system that
would otherwise need a hook. Imported only for a config.json that may request a GPU.
"""

from __future__ import annotations

import os
import time

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record, config_json, oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.containers.hot import ledger
from gpuhook.entry import plan_context
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import bundle, fastjson, files, procfs, state
from gpuhook.request import parse, plan, resolve
from gpuhook.request.replicas import claims_of, replicas_of
from gpuhook.vendors.hot import rootfs_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.entry.oci_command import Command
    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.request.plan import Injection

WRAPPER, ENGINE = "wrapper", "cdi+wrapper"  # routes of an injection


class Edited:
    """The result for a config.json.

    `requests` are the sources that applied, each with the context of its vendor; `source` is that
    of the first vendor. `grant` is what they resolved to, `memory` are the ledger's records of
    limits; `route` is "" for a container that was assigned nothing.
    """

    __slots__ = ("grant", "is_changed", "memory", "requests", "route", "source")

    def __init__(self) -> None:
        self.requests: list[tuple[VendorContext, parse.Source]] = []
        self.source: parse.Source | None = None
        self.grant: resolve.Grant | None = None
        self.memory: list[dict[str, Any]] = []
        self.route = ""
        self.is_changed = False


class Create:
    """One create: the call, and the context of its plan.

    `launcher` is the path of the program that the engine has called. `trouble` is the error of the
    settings: without a known policy, no GPU is assigned. `work` does the work in the root file
    system; a dry run passes its own, and the path of gpuhook-hook as `hook` if the node is another
    one.
    """

    def __init__(
        self,
        command: Command,
        context: PlanContext,
        launcher: str,
        trouble: GpuhookError | None = None,
        work: rootfs_jobs.RootfsWork | None = None,
        *,
        hook: str = "",
    ) -> None:
        self.command = command
        self.launcher = launcher
        self.context = context
        self._words = context.node.vocabulary
        self.log = context.log
        self._trouble = trouble
        self._work = work or rootfs_jobs.RootfsWork()
        self._hook = hook
        self.is_exclusive = False  # one of the container's devices
        self._began = time.monotonic()

    def edit(self, path: str, raw: bytes, low_level: str) -> None:
        """Rewrite the config.json at `path`, whose content is `raw`, if it requests GPUs.

        Raises a GpuhookError or OSError if an assigned GPU cannot be provided; config.json is
        unchanged then.
        """
        spec = config_json.parsed(path, raw)
        edited = self.edited(spec, low_level)
        if edited.is_changed:
            files.replace(path, fastjson.dumps(spec, raw))
        if edited.route or self.log.warnings:
            trouble = self._enter_in_ledger(spec, edited, low_level)
            if trouble is not None and self.is_exclusive:
                files.replace(path, raw)
                raise trouble  # other containers would not know that it has the device
            if trouble is not None:
                self.log.warning(trouble)

    def edited(self, spec: dict[str, Any], low_level: str) -> Edited:
        """Edit `spec` if it requests GPUs, and do the jobs of the edits; returns the result.

        Neither config.json nor the ledger is written. Raises as edit() does; `spec` is unusable
        then.
        """
        edited = Edited()
        taken_back = change_record.take_back(spec)
        edited.requests = plan_context.sources_logged(spec, self.context)
        edited.source = next((s for one, s in edited.requests if one is self.context), None)
        engine_hooks = hook_args.hooks_in(spec)
        if not edited.requests:
            if engine_hooks or parse.limits_memory(spec):
                config_json.require_unambiguous(spec)
                self._note_engine(spec, edited, engine_hooks, low_level)
        else:
            if self._trouble is not None:
                raise self._trouble
            given = plan_context.plans_logged(spec, edited.requests)
            if given:
                self._apply(spec, edited, given, engine_hooks, low_level)
        # Without a grant: the edits of an earlier create, when a driver was loaded, are removed.
        edited.is_changed = edited.is_changed or taken_back
        return edited

    def _apply(
        self,
        spec: dict[str, Any],
        edited: Edited,
        given: list[tuple[VendorContext, Injection]],
        engine_hooks: list[dict[str, Any]],
        low_level: str,
    ) -> None:
        """Apply the grants to `spec`, and do the jobs of hooks that no engine's hook will do."""
        before = change_record.survey(spec)
        engine = [hook_args.of_hook(hook) for hook in engine_hooks]
        empty = plan.Injection(None, [])
        own = next((one for context, one in given if context is self.context), empty)
        if own.is_given:
            self._enforce(spec, own, engine)
        else:
            self._require_engine(spec, engine)
        if self.context.settings.exclusive_devices:
            self._claim(given)
        edited.grant, todo = resolve.Grant.joined([one.grant for _, one in given]), own.hook_jobs
        if engine_hooks:
            brought = [hook["args"] for hook in engine_hooks]
            todo = [job for job in todo if job.hook()["args"] not in brought]
        parts = [one.edits for context, one in given if context is not self.context]
        if own.is_given:
            parts.insert(0, plan.with_void(own.edits, self._words))
            _remove_foreign_hooks(spec, self._words)
        elif engine:
            _drop_others(spec, self._words)
        edits = parts[0] if len(parts) == 1 else merged(parts)
        oci_spec.apply(spec, edits)
        bundle = self.command.bundle
        outcome = rootfs_jobs.do(bundle, spec, edits, todo, engine=engine, work=self._work)
        for hook in outcome.hooks:
            oci_spec.add_hook(spec, hook)
        for what in outcome.left_out:
            self.log.warning(fault("GH1641", what=what))
        # In a user namespace they are not in config.json's devices, but bound.
        nodes = [node["path"] for node in edits.get("deviceNodes") or ()]
        requested = edited.grant.in_full(plan_context.requested_names(edited.requests))
        names = [*edited.grant.devices, *requested]
        edited.memory, entries = self._limit(spec, nodes, names, low_level)
        change_record.write(spec, before, _with_variables(edits, entries))
        edited.is_changed = True
        edited.route = WRAPPER

    def _claim(self, given: list[tuple[VendorContext, Injection]]) -> None:
        """Raise GH1063 for an exclusive device of another container. `explain` has no id."""
        from gpuhook.entry import exclusive_devices  # few nodes have any

        command, grants = self.command, [(context, one.grant) for context, one in given]
        is_dry = not command.identity
        own = os.path.abspath(command.bundle) if is_dry and command.bundle else ""
        self.is_exclusive = exclusive_devices.claim(grants, own, is_dry=is_dry)

    def _enforce(self, spec: dict[str, Any], injection: Injection, engine: list[Jobs]) -> None:
        """Enforce the container's requirements of the driver."""
        nodes = [node["path"] for node in injection.edits.get("deviceNodes") or ()]
        nodes += oci_spec.device_paths(spec) if engine else []
        jobs = [*injection.hook_jobs, *engine]
        plan_context.enforce_requirements(injection.requirements, jobs, nodes, self.context)

    def _note_engine(
        self,
        spec: dict[str, Any],
        edited: Edited,
        engine_hooks: list[dict[str, Any]],
        low_level: str,
    ) -> None:
        """Check a container to which its engine has already applied gpuhook's CDI spec."""
        self._require_engine(spec, [hook_args.of_hook(hook) for hook in engine_hooks])
        before = change_record.survey(spec)
        edited.memory, entries = self._limit(spec, [], [], low_level)
        if edited.memory and self._trouble is not None:
            raise self._trouble
        if edited.memory:
            change_record.write(spec, before, {"env": entries})
        if engine_hooks or edited.memory:
            edited.route = ENGINE
        is_voided = bool(engine_hooks) and _drop_others(spec, self._words)
        edited.is_changed = is_voided or bool(edited.memory)

    def _require_engine(self, spec: dict[str, Any], engine: list[Jobs]) -> None:
        """Check the jobs of hooks that the engine has put into `spec`."""
        node = self.context.node
        for job in engine if node.is_here else ():
            node.require_fresh(job)
        if engine:
            required = plan.requirements(spec, self.context.settings, node)
            nodes = rootfs_jobs.nodes(spec)
            plan_context.enforce_requirements(required, engine, nodes, self.context)

    def _limit(
        self, spec: dict[str, Any], nodes: list[str], names: list[str], low_level: str
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Limit the container's memory of its devices, if the request has limits.

        Returns the ledger's records, and the variables that were set for it.
        """
        if not parse.limits_memory(spec):
            return [], []
        bundle.load("gpuhook.memory_limits.hot.create_limits")
        from gpuhook.memory_limits.hot import create_limits

        root = self.command.root or state.runtime_root(low_level)
        nodes = [*oci_spec.device_paths(spec), *nodes]
        return create_limits.add(
            spec, nodes, names, self.context, self.launcher, root=root, hook=self._hook
        )

    def _enter_in_ledger(
        self, spec: dict[str, Any], edited: Edited, low_level: str
    ) -> GpuhookError | None:
        """Return GH1410 if the container's entry cannot be written."""
        command = self.command
        if not ledger.is_id(command.identity):
            return None  # the runtime will refuse the id
        root = command.root or state.runtime_root(low_level)
        if os.path.isdir(os.path.join(root, command.identity)):
            return None  # the runtime will refuse an id in use; its entry is kept
        creator = os.getppid()  # the launcher, which becomes the runtime
        process = {"pid": creator, "started": procfs.start_time(creator)}
        entry = self.ledger_entry(spec, edited, low_level, process)
        known = ledger.entry_at(ledger.path_of(root, command.identity)) or {}
        if edited.route == ENGINE and known.pop("expected", None):
            # NRI's plugin has given the devices: its entry says which, and why.
            entry = {**entry, **known, "bundle": entry["bundle"], "runtime": low_level}
        return ledger.enter(root, command.identity, entry)

    def ledger_entry(
        self,
        spec: dict[str, Any],
        edited: Edited,
        low_level: str,
        process: dict[str, Any],
        route: str = "",
    ) -> dict[str, Any]:
        """Return the container's entry. `process` are the keys of the process that represents it.

        A `route` replaces that of the result.
        """
        command = self.command
        grant = edited.grant or resolve.Grant()
        # Without a route there are only warnings: its nodes are not those of a grant.
        nodes = oci_spec.device_paths(spec) if edited.route else []
        replicas: list[str] = []
        claims: list[dict[str, str]] = []
        if edited.route:
            replicas = replicas_of(spec, grant.devices, lambda: self.context.covered(nodes))
            claims = claims_of(spec, grant.devices, lambda: self.context.covered(nodes))
        entry = ledger.new_entry(
            spec.get("annotations"),
            os.path.abspath(command.bundle) if command.bundle else "",
            edited.route and (route or edited.route),
            devices=grant.devices,
            nodes=nodes,
            replicas=grant.replicas or replicas,
            identities=plan_context.identities([one for one, _ in edited.requests], nodes),
            requested=plan_context.requested_names(edited.requests),
            source="; ".join([source.where for _, source in edited.requests]),
            runtime=low_level,
        )
        entry.update(process)
        entry["milliseconds"] = round((time.monotonic() - self._began) * 1000, 2)
        if edited.memory:
            entry["memory"] = edited.memory
        if claims:
            entry["claims"] = claims
        if self.log.warnings:
            from gpuhook.containers.hot import ledger_warnings

            entry["warnings"] = ledger_warnings.records(self.log.warnings)
        return entry


def _with_variables(edits: ContainerEdits, entries: list[str]) -> ContainerEdits:
    kept = edits.copy()
    kept["env"] = [*(edits.get("env") or ()), *entries]
    return kept


def _drop_others(spec: dict[str, Any], words: parse.Vocabulary) -> bool:
    """Leave one entry of the devices' variable, `void`; returns whether there were others.

    Engines append CDI's entry to the image's, and getenv(3) finds the first.
    """
    name = words.devices_env
    env = fastjson.strings(spec, "process", "env")
    if sum(entry.startswith(name + "=") for entry in env) < 2:
        return False
    oci_spec.set_variable(spec, name + "=void")
    return True


def _remove_foreign_hooks(spec: dict[str, Any], words: parse.Vocabulary) -> None:
    """Remove the vendor's prestart hooks: they would inject the container's GPUs a second time."""
    stage = fastjson.array(spec, "hooks", "prestart")
    stage[:] = [
        hook
        for hook in stage
        if not (
            isinstance(hook, dict)
            and str(hook.get("path")).rpartition("/")[2] in words.foreign_hooks
        )
    ]
