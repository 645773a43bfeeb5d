# SPDX-License-Identifier: Apache-2.0
"""CDI specs as files: engines find them, can read them, and they do not conflict."""

from __future__ import annotations

import posixpath

from gpuhook.cdi.hot import spec_versions
from gpuhook.doctor.checks.cdi.systemd_units import unit_fault
from gpuhook.doctor.facts import gpu_runtimes
from gpuhook.engines.read import podman_config
from gpuhook.engines.read.engine_config import parse_version
from gpuhook.node_facts import cdi_specs, engine_facts, program_facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    first_items,
    for_each,
    ok,
)
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Findings

NONE = "the node has no CDI spec for NVIDIA GPUs"
_UNRESOLVABLE = '"unresolvable CDI devices nvidia.com/gpu=all"'
_REFRESH_UNITS = (specs.REFRESH_UNIT, "nvidia-cdi-refresh.path")
_LIMITED = 4  # the release of Podman that reads only old versions
_GROUP, _OTHERS = 0o020, 0o002
_WITHOUT_GROUPS = "--feature-flag=no-additional-gids-for-device-nodes"
_USUAL = ("nvidia.yaml", "nvidia.json")


@check("specs.present", "A CDI spec describes the GPUs")
def _present(node: ExaminedNode) -> Findings:
    found = specs.spec_files(node)
    if found:
        return [ok(f"{one.path} is a spec from {one.author}", one.path) for one in found]
    if not (facts.has_gpu(node) or facts.is_wsl(node) or facts.is_tegra(node)):
        return absent(f"{NONE} and no GPU", *cdi_specs.DIRECTORIES)
    users = gpu_runtimes.spec_users(node)
    if not users:
        return absent(f"{NONE}, and no engine here needs one", *cdi_specs.DIRECTORIES)
    command = "gpuhook refresh"
    if engine_facts.has_toolkit(node):
        command = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    if program_facts.has_unit(node, specs.REFRESH_UNIT):
        command = "systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    return Finding(
        WARNING,
        f"{NONE} in {' or '.join(cdi_specs.DIRECTORIES)}, and {', '.join(users)} needs one",
        meaning="engines that inject devices with CDI (podman run --device nvidia.com/gpu=all, "
        f"docker run --device, Kubernetes with CDI) fail with {_UNRESOLVABLE}",
        command=command,
        looked_at=cdi_specs.DIRECTORIES,
    )


@check("specs.valid", "Engines can read the CDI specs")
@for_each(specs.spec_files, absent(NONE))
def _valid(node: ExaminedNode, one: SpecFile) -> Finding:
    if one.error is None:
        return ok(f"{one.path} is valid", one.path)
    return Finding(
        FAILED,
        one.error.message,
        subject=one.path,
        meaning="engines skip the whole file and usually report it only in their logs; "
        f"containers that request its devices fail with {_UNRESOLVABLE}",
        command=specs.rewrite_command(node, one),
        looked_at=(one.path,),
    )


@check("specs.names", "Specs have names that engines read")
def _names(node: ExaminedNode) -> Findings:
    found = [
        f"{directory}/{name}"
        for directory in cdi_specs.directories(node)
        for name in node.tree.names(directory)
        if not name.endswith(cdi_specs.EXTENSIONS) and not name.startswith(".")
    ]
    strangers = [path for path in found if "nvidia" in path or path.endswith(".yml")]
    if not strangers:
        return ok("every file in the CDI directories has a name that engines read")
    return [
        Finding(
            WARNING,
            f"engines ignore {path}: its name does not end in .yaml or .json",
            subject=path,
            meaning=f"its devices do not exist: {_UNRESOLVABLE}",
            command=f"mv -n {path} {posixpath.splitext(path)[0]}.yaml  # or remove it",
            looked_at=(path,),
        )
        for path in strangers
    ]


@check("specs.conflicts", "No device is described twice")
def _conflicts(node: ExaminedNode) -> Findings:
    files = specs.valid_specs(node)
    if not files:
        return absent(NONE)
    found = cdi_specs.conflicts(files)
    if not found:
        return ok("no device is described twice in one directory", *cdi_specs.directories(node))
    return [
        Finding(
            FAILED,
            f"{' and '.join(paths)} both describe {first_items(names)}",
            subject=paths[-1],
            meaning=f"engines use neither: a device in conflict does not exist: {_UNRESOLVABLE}",
            command=f"rm {_superfluous(node, paths)}",
            looked_at=paths,
        )
        for paths, names in found.items()
    ]


def _superfluous(node: ExaminedNode, paths: tuple[str, ...]) -> str:
    """Return the spec that no tool maintains: one with an unusual name, else the oldest."""

    def order(path: str) -> tuple[bool, float]:
        status = node.tree.status(path)
        return posixpath.basename(path) in _USUAL, status.mtime if status else 0.0

    return min(paths, key=order)


@check("specs.owners", "Only root can write the specs")
def _owners(node: ExaminedNode) -> Findings:
    places = [*cdi_specs.directories(node), *(one.path for one in specs.spec_files(node))]
    if not places:
        return absent(NONE)
    found = [finding for path in places for finding in _loose(node, path)]
    return found or [ok("only root can write the specs", *places)]


def _loose(node: ExaminedNode, path: str) -> Iterable[Finding]:
    status = node.tree.status(path)
    if status is None:
        return
    bits = status.permissions
    writers = bits & (_OTHERS if status.gid == 0 else _OTHERS | _GROUP)
    if status.uid == 0 and not writers:
        return
    reason = f"belongs to the user {status.uid}" if status.uid else f"has mode {bits:04o}"
    yield Finding(
        WARNING,
        f"{path} {reason}: users other than root can write to it",
        subject=path,
        meaning=(
            "a user who can write a spec is effectively root on this node: the spec's hooks run "
            "as root, and "
            "it can mount any file on the host"
        ),
        command=f"chown root:root {path} && chmod go-w {path}",
        looked_at=(path,),
    )


@check("specs.engines", "The engines support the CDI version of the specs")
def _engines(node: ExaminedNode) -> Findings:
    files = specs.valid_specs(node)
    programs = node.readings.document(node_readings.PROGRAMS)
    if not files or programs is None:
        return absent("the files of a node do not show engine versions" if files else NONE)
    podman = str((programs.get("podman") or {}).get("version") or "").split()
    version = next((word for word in podman if word[:1].isdigit()), "")
    parsed = parse_version(version)
    if parsed is None or parsed[0] != _LIMITED:
        return ok("no engine here is known to be too old for these specs")
    limit = podman_config.newest_cdi(parsed)
    newer = [
        one
        for one in files
        if _order(one.document or {}) > spec_versions.VERSIONS.index(limit)
        and not specs.is_hidden(node, one)
    ]
    if not newer:
        return ok(f"Podman {version} reads these specs")
    return [
        Finding(
            FAILED,
            f"{one.path} needs CDI {spec_versions.VERSIONS[_order(one.document or {})]}, and "
            f"Podman {version} supports at most {limit}",
            subject=one.path,
            meaning='Podman skips the file: "invalid version" or "json: unknown field" with '
            f"--log-level=debug, and {_UNRESOLVABLE}",
            command=f"nvidia-ctk cdi generate {_WITHOUT_GROUPS} --output={one.path}"
            if one.author != specs.GPUHOOK
            else f"chmod 0666 /dev/nvidia* && {specs.rewrite_command(node, one)}",
            looked_at=(one.path,),
        )
        for one in newer
    ]


def _order(document: dict[str, object]) -> int:
    """Return the place of the version that a spec declares, or of a newer one that it needs."""
    declared, needed = str(document.get("cdiVersion")), spec_versions.lowest(document)
    known = [one for one in (declared, needed) if one in spec_versions.VERSIONS]
    return max(spec_versions.VERSIONS.index(one) for one in known)


@check("specs.refresh", "NVIDIA's unit keeps its spec up to date")
def _refresh(node: ExaminedNode) -> Findings:
    if not program_facts.has_unit(node, specs.REFRESH_UNIT):
        return absent("nvidia-cdi-refresh is not installed; it comes with NVIDIA's toolkit 1.18")
    meaning = (
        "the spec in /var/run/cdi is missing or stale after a boot or a driver change:"
        f" {_UNRESOLVABLE}"
    )
    fault = unit_fault(node, _REFRESH_UNITS, _REFRESH_UNITS, meaning)
    return fault or ok(
        "nvidia-cdi-refresh updates the spec when the driver changes", *_REFRESH_UNITS
    )


CHECKS = (_present, _valid, _names, _conflicts, _owners, _engines, _refresh)
