# SPDX-License-Identifier: Apache-2.0
"""The drivers of Dynamic Resource Allocation on the node: registered, alone, with CDI."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.checks.kubernetes import kubelet, plugin
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    fact,
    first_items,
    ok,
    unless,
)
from gpuhook.node_facts.engine_facts import containerds, crios
from gpuhook.node_facts.sources import dra_files, node_readings
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.engine_facts import EngineHere

REGISTRATION, PREPARED = "dra.registration", "dra.prepared"
OURS, NVIDIA = "gpuhook", "gpu-kubelet-plugin"
RESTART = (
    "kubectl get daemonsets -A | grep -e dra && kubectl -n NAMESPACE rollout restart daemonset/NAME"
)
_CDI_DIRS = ("/var/run/cdi", "/run/cdi")
_UNPREPARED = (
    "the kubelet calls the driver before it removes a pod with claims: without the driver, pods "
    "stay Terminating"
)


@fact
def registrations(node: ExaminedNode) -> dict[str, list[str]]:
    """Return the registration sockets of the drivers for GPUs."""
    found = dra_files.registrations(node.tree, facts.kubelet(node).directory)
    own = {vendor.dra_driver for vendor in vendors()}
    return {driver: paths for driver, paths in found.items() if driver in own}


@fact
def live(node: ExaminedNode) -> list[str]:
    """Return the drivers that answer at a registration socket, or may do so."""
    return [
        driver
        for driver, paths in registrations(node).items()
        if any(not _trouble(node, path) for path in paths)
    ]


def _trouble(node: ExaminedNode, path: str) -> str:
    """Return why no process answers at a socket, "" if one does or if that is unknown."""
    states = node.readings.document(node_readings.DRA_SOCKETS) or {}
    return str(states.get(path, ""))


def no_driver(node: ExaminedNode) -> Finding | None:
    """Return that the node has no driver for GPUs, None if it has."""
    place = dra_files.registry(facts.kubelet(node).directory)
    if registrations(node):
        return None
    return absent("no driver of Dynamic Resource Allocation for GPUs is registered here", place)


@check(REGISTRATION, "The kubelet reaches the DRA drivers for GPUs", needs=(kubelet.RUNNING,))
@unless(facts.no_kubelet)
@unless(no_driver)
def _registration(node: ExaminedNode) -> Iterator[Finding]:
    directory = facts.kubelet(node).directory
    for driver, paths in registrations(node).items():
        dead = [path for path in paths if _trouble(node, path)]
        services = dra_files.services(node.tree, directory, driver)
        answering = [path for path in services if not _trouble(node, path)]
        if not answering and len(dead) < len(paths):
            yield _no_service(driver, f"{directory}/plugins/{driver}")
        elif dead:
            yield _stale(driver, dead, is_live=len(dead) < len(paths), why=_trouble(node, dead[0]))
        else:
            yield ok(f"{driver} is at {', '.join(paths)}", *paths, subject=driver)


def _stale(driver: str, dead: list[str], *, is_live: bool, why: str) -> Finding:
    return Finding(
        WARNING if is_live else FAILED,
        f"no process listens on {', '.join(dead)}, the registration of {driver}: {why}",
        subject=driver,
        meaning="the kubelet retries the dead socket"
        if is_live
        else "the driver was killed or removed without `gpuhook dra drain`: pods with claims stay "
        "ContainerCreating or Terminating",
        command=f"sudo rm {' '.join(dead)}" if is_live else f"{RESTART} # then: sudo rm {dead[0]}",
        looked_at=tuple(dead),
    )


def _no_service(driver: str, place: str) -> Finding:
    return Finding(
        FAILED,
        f"{driver} is registered, but no process listens on a socket dra*.sock in {place}",
        subject=driver,
        meaning="pods with claims stay ContainerCreating: FailedPrepareDynamicResources",
        command=f"{RESTART} # mount {place} at the same path in its container",
        looked_at=(place,),
    )


@fact
def _programs(node: ExaminedNode) -> list[tuple[str, int]]:
    """Return (program, pid) of the DRA drivers that run."""
    found = []
    for one in node.readings.document(node_readings.PROCESSES) or ():
        names = {posixpath.basename(word) for word in one["argv"][:6]}
        is_ours = OURS in names and {"dra", "run"} <= set(one["argv"])
        if is_ours or NVIDIA in names:
            found.append((OURS if is_ours else NVIDIA, int(one["pid"])))
    return found


@check("dra.rivals", "One program is the driver of the GPUs", needs=(REGISTRATION,))
@unless(facts.no_kubelet)
@unless(no_driver)
def _rivals(node: ExaminedNode) -> Finding:
    programs = _programs(node)
    names = sorted({name for name, _ in programs})
    if len(names) > 1:
        listed = ", ".join(f"{name} (pid {pid})" for name, pid in programs)
        return Finding(
            FAILED,
            f"two programs are DRA drivers of the same GPUs: {listed}",
            meaning="the kubelet calls the one that registered last, and both publish "
            "ResourceSlices: a GPU can be allocated twice, and claims of the other one fail",
            command="helm uninstall --namespace NAMESPACE THE-ONE-TOO-MANY "
            "# after `gpuhook dra drain` on each node",
        )
    twice = [
        driver
        for driver, paths in registrations(node).items()
        if sum(not _trouble(node, path) for path in paths) > 1
    ]
    if twice:
        return Finding(
            WARNING,
            f"{', '.join(twice)} has two registrations that answer",
            subject=twice[0],
            meaning="this is normal for the minute of an update; later, two DaemonSets run",
            command="kubectl get pods -A -o wide | grep -e dra",
        )
    return ok("one program is the driver of the GPUs")


@check(
    "dra.double-offer", "Device plugin and DRA driver offer different GPUs", needs=(REGISTRATION,)
)
@unless(facts.no_kubelet)
@unless(no_driver)
def _double_offer(node: ExaminedNode) -> Finding:
    found = plugin.checkpoint(node)
    domains = {vendor.domain for vendor in vendors() if vendor.dra_driver in live(node)}
    registered = found.registered if found else {}
    named = [name for name, ids in registered.items() if ids and name.partition("/")[0] in domains]
    if not named:
        return ok("the kubelet has no GPUs of a device plugin that a DRA driver offers, too")
    return Finding(
        WARNING,
        f"the kubelet has {first_items(named)} of a device plugin, and {', '.join(live(node))} "
        "offers GPUs of this node, too",
        subject=named[0],
        meaning="the scheduler does not compare both: one GPU can be assigned twice. gpuhook's "
        "driver refuses the second assignment, another driver does not",
        command="keep nodes apart: helm upgrade --reuse-values --set dra.nodeLabel=KEY=VALUE, or "
        "exclude the GPUs in one of both: gpuhook.excludeDevices",
        looked_at=(found.path,) if found else (),
    )


@check("dra.cdi", "The engine applies the CDI specs of claims", needs=(REGISTRATION,))
@unless(facts.no_kubelet)
@unless(no_driver)
def _cdi(node: ExaminedNode) -> Iterator[Finding]:
    engines: list[tuple[EngineHere, bool]] = [
        *((one, one.read.has_cdi) for one in containerds(node) if one.read.has_cri),
        *((one, True) for one in crios(node)),
    ]
    for one, has_cdi in engines:
        directories = one.configuration.cdi_dirs
        if not has_cdi:
            yield _engine_without_cdi(one.path, one.restart, one.engine)
        elif not set(directories) & set(_CDI_DIRS):
            yield Finding(
                FAILED,
                f"{one.engine} reads CDI specs in {', '.join(directories)}, and drivers write "
                f"those of claims to {_CDI_DIRS[0]}",
                subject=one.path,
                meaning='pods with claims do not start: "unresolvable CDI devices"',
                command=f"add {_CDI_DIRS[0]} to cdi_spec_dirs in {one.path} && {one.restart}",
                looked_at=one.configuration.files,
            )
        else:
            yield ok(f"{one.engine} reads CDI specs in {', '.join(directories)}", one.path)
    if not engines:
        yield absent("no engine of the kubelet is known")


def _engine_without_cdi(path: str, restart: str, engine: str) -> Finding:
    return Finding(
        FAILED,
        f"CDI is off in {engine} ({path}): containerd 1.7 has enable_cdi = false by default",
        subject=path,
        meaning="containers with claims start without their GPUs, or not at all",
        command=f"gpuhook configure containerd --enable-cdi && {restart}",
        looked_at=(path,),
    )


@check(PREPARED, "The drivers of prepared claims run", needs=(kubelet.RUNNING,))
@unless(facts.no_kubelet)
def _prepared(node: ExaminedNode) -> Iterator[Finding]:
    directory = facts.kubelet(node).directory
    own = {vendor.dra_driver for vendor in vendors()}
    claims = dra_files.prepared_claims(node.tree, directory)
    dead = {driver: names for driver, names in claims.items() if driver in own - {*live(node)}}
    for driver, names in dead.items():
        ending = ((facts.api(node) or {}).get("dra") or {}).get("terminating") or []
        pods = f"; {first_items(ending)} do not end" if ending else ""
        yield Finding(
            FAILED,
            f"the kubelet has claims of {driver} ({first_items(names)}), and the driver does not "
            f"run{pods}",
            subject=driver,
            meaning=_UNPREPARED,
            command=f"{RESTART} # it unprepares them; before it is removed: gpuhook dra drain",
            looked_at=(f"{directory}/dra_manager_state",),
        )
    if not dead:
        number = sum(map(len, claims.values()))
        yield ok(f"{number} claims are prepared") if number else absent("no claim is prepared here")


CHECKS = (_registration, _rivals, _double_offer, _cdi, _prepared)
