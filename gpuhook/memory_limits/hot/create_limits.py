# SPDX-License-Identifier: Apache-2.0
"""The part of a create for a container whose GPU memory is limited.

Imported only for such a container. The wrapper cannot set the limit itself, as the cgroup does not
exist yet: a createRuntime hook does, which the runtime runs on the host's side. The container's
variables get the values that apply.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.hook_args import HOOK_ENV, HOOK_NAME, LIMIT
from gpuhook.apply.spec import oci_spec
from gpuhook.apply.spec.oci_spec import HOOK_MARK
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import settings, state
from gpuhook.memory_limits.hot import container_limits, framework_hints
from gpuhook.request import parse
from gpuhook.request.memory_request import BY_KERNEL, MIB, NO_LIMIT
from gpuhook.vendors.hot.memory_vendors import memory_vendors, vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.cdi.hot.container_edits import Hook
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.request.memory_request import MemoryLimit

_PENDING = "the hook that sets it has not run"
_TIMEOUT = 60  # seconds: the driver has a third of that
_V2 = "/sys/fs/cgroup/cgroup.controllers"


def add(
    spec: dict[str, Any],
    nodes: list[str],
    names: list[str],
    context: PlanContext,
    launcher: str,
    *,
    root: str,
    hook: str = "",
) -> tuple[list[dict[str, Any]], list[str]]:
    """Add the hook that sets the container's limits, and their variables; or raise why not.

    `nodes` are the container's device nodes, `names` those of its devices, `launcher` is the path
    of the program that the engine has called, `root` the runtime's state root; `hook` is the path
    of gpuhook-hook if it is known, as on another node. Returns the ledger's records, and the
    variables that were set in `spec`. Raises GH1022 to GH1024, and, if limits.onFailure requires
    the limit, GH1312 and GH1646.
    """
    policy = context.settings.limits_on_failure
    request = container_limits.DeviceRequest(
        spec, nodes, names, lambda: context.node.covered(nodes)
    )
    devices, found = container_limits.known_limits(request, policy, context.log.warning)
    if not found:
        return [], []
    required = container_limits.is_required(policy, is_asked=any(limit.is_asked for limit in found))
    library, why = context.node.driver_library(), _PENDING
    try:
        args = _args(spec, found, context, library, root=root, required=required)
        by_kernel = any(vendor_of(limit.device).limited_by == BY_KERNEL for limit in found)
        program = hook or _program(launcher)
        oci_spec.add_hook(spec, _hook(program, args, reads_sysfs=by_kernel))
    except GpuhookError as error:
        if required:
            raise
        why = f"{error.code}: {error.message}"
        for limit in found:
            context.log.warning(fault("GH1647", device=limit.device, trouble=error.message))
    held = parse.environment(spec)
    entries = _shares(held, found, devices)
    driver = library if why == _PENDING else ""
    entries += _hints(held, found, context.settings.limits_hints, driver)
    for entry in entries:
        oci_spec.set_variable(spec, entry)
    return [_record(limit, why) for limit in found], entries


def _record(limit: MemoryLimit, why: str) -> dict[str, Any]:
    """Return the ledger's record of a limit that the driver does not enforce, or not yet."""
    return {
        "device": limit.device,
        "hard": limit.hard,
        "soft": limit.soft,
        "asked": limit.is_asked,
        "by": "",
        "trouble": why,
    }


def _args(
    spec: dict[str, Any],
    found: list[MemoryLimit],
    context: PlanContext,
    library: str,
    *,
    root: str,
    required: bool,
) -> list[str]:
    """Return the arguments of the hook that sets the limits."""
    args = [HOOK_NAME, LIMIT]
    for limit in found:
        asked = ",asked" if limit.is_asked else ""
        args += ["--gpu", f"{limit.device}={limit.hard},{limit.soft}{asked}"]
    for grant in () if required else container_limits.wider(spec, found):
        args += ["--grant", f"{grant.device}={grant.hard},{grant.soft}"]
    guarantee = context.settings.limits_guarantee
    if library:
        args += ["--nvml", library]
    args += ["--root", os.path.abspath(root)]
    if guarantee != settings.AUTO:
        args += ["--guarantee", guarantee]
    if required:
        args.append("--required")
    return args


def _hook(program: str, args: list[str], *, reads_sysfs: bool) -> Hook:
    # The variables are explicit: without any, runc gives a hook the image's (CVE-2025-23266).
    env = [*HOOK_ENV, HOOK_MARK + LIMIT]
    if state.directory() != state.DIRECTORY:
        env.append(f"{state.DIRECTORY_ENV}={state.directory()}")
    if reads_sysfs and state.host_root() != "/":
        env.append(f"{state.HOST_ROOT_ENV}={state.host_root()}")
    return {
        "hookName": "createRuntime",
        "path": program,
        "args": args,
        "env": env,
        "timeout": _TIMEOUT,
    }


def _program(launcher: str) -> str:
    """Return the path of gpuhook-hook, first that of this installation; GH1646 without one."""
    if not os.path.exists(_V2):
        raise fault("GH1312")  # the hook would find no cgroup
    path = state.find_program(launcher, HOOK_NAME)
    if not path:
        raise fault("GH1646", dirs=":".join(state.program_dirs(launcher)))
    return path


def _shares(held: dict[str, str], found: list[MemoryLimit], devices: list[str]) -> list[str]:
    """Return the variables with the limits that apply.

    A vendor's variable applies to all of its devices: if they differ, or one of `devices` has no
    limit, only an existing variable is corrected.
    """
    entries: list[str] = []
    for vendor in memory_vendors():
        limits = [limit for limit in found if vendor.has_device(limit.device)]
        is_whole = len(limits) == len(list(filter(vendor.has_device, devices)))
        words = vendor.vocabulary
        for name, values in (
            (words.memory_limit_env, {limit.hard for limit in limits}),
            (words.memory_request_env, {limit.soft for limit in limits}),
        ):
            value = min(values, default=0)
            text = "" if value in (0, NO_LIMIT) else str(value // MIB)
            is_needed = limits and (held.get(name) or (is_whole and len(values) == 1))
            if is_needed and text != held.get(name, ""):
                entries.append(f"{name}={text}")
    return entries


def _hints(
    held: dict[str, str], found: list[MemoryLimit], more: Iterable[str], library: str
) -> list[str]:
    """Return the variables by which frameworks learn their share.

    If the driver with `library` reports the share as the total, a fraction of the card would be a
    fraction of the share.
    """
    hints_env = vendor_of(found[0].device).vocabulary.hints_env
    names = dict.fromkeys([*(name.strip() for name in held.get(hints_env, "").split(",")), *more])
    names.pop("", None)
    hard = min(limit.hard for limit in found)
    if not names or hard == NO_LIMIT:
        return []
    known: dict[str, int] = {}
    for vendor in memory_vendors():
        own = [limit.device for limit in found if vendor.has_device(limit.device)]
        if own and not vendor.reports_limit(own, library):
            known.update(vendor.totals(own))
    totals = [known.get(limit.device) for limit in found]
    # The largest card: of it, the share is the smallest fraction.
    total = None if None in totals else max(one for one in totals if one is not None)
    hints = framework_hints.missing(names, hard, total, held)
    return [f"{name}={value}" for name, value in hints.items()]
