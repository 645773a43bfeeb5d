# SPDX-License-Identifier: Apache-2.0
"""CDI specs as files: engines find them, can read them, and they do not contradict each other."""

from __future__ import annotations

import posixpath

from gpuhook.cdi.hot import spec_versions
from gpuhook.doctor import engine_specs
from gpuhook.doctor.check import FAILED, SPECS, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import service_state
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.node import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

NONE = "there is no CDI spec of NVIDIA GPUs"
_UNRESOLVABLE = '"unresolvable CDI devices nvidia.com/gpu=all"'
_REFRESH_UNITS = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
_GROUP, _OTHERS = 0o020, 0o002
_WITHOUT_GROUPS = "--feature-flag=no-additional-gids-for-device-nodes"
_USUAL = ("nvidia.yaml", "nvidia.json")


def _present(node: ExaminedNode) -> Iterable[Finding]:
    found = specs.spec_files(node)
    if found:
        return [ok(f"{one.path} is a spec that {one.author} wrote", one.path) for one in found]
    if not (facts.has_gpu(node) or facts.is_wsl(node) or facts.is_tegra(node)):
        return [absent(f"{NONE}, and no GPU", *specs.DIRECTORIES)]
    users = engine_specs.users(node)
    if not users:
        return [absent(f"{NONE}, and no engine here needs one", *specs.DIRECTORIES)]
    command = "gpuhook refresh"
    if specs.has_toolkit(node):
        command = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    if specs.has_refresh(node):
        command = "systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    return [
        Finding(
            WARNING,
            f"{NONE} in {' or '.join(specs.DIRECTORIES)}, and {', '.join(users)} gives GPUs by one",
            meaning="engines that inject devices by CDI (podman run --device nvidia.com/gpu=all, "
            f"docker run --device, Kubernetes with CDI) say {_UNRESOLVABLE}",
            command=command,
            looked_at=specs.DIRECTORIES,
        )
    ]


def _valid(node: ExaminedNode) -> Iterable[Finding]:
    found = specs.spec_files(node)
    if not found:
        return [absent(NONE)]
    return [
        ok(f"{one.path} is valid", one.path)
        if one.error is None
        else Finding(
            FAILED,
            one.error.message,
            subject=one.path,
            meaning="engines leave out the whole file, and mostly say so in their logs alone; "
            f"containers that ask for its devices get {_UNRESOLVABLE}",
            command=specs.rewrite(node, one),
            looked_at=(one.path,),
        )
        for one in found
    ]


def _names(node: ExaminedNode) -> Iterable[Finding]:
    found = [
        f"{directory}/{name}"
        for directory in specs.directories(node)
        for name in node.tree.names(directory)
        if not name.endswith(specs.EXTENSIONS) and not name.startswith(".")
    ]
    strangers = [path for path in found if "nvidia" in path or path.endswith(".yml")]
    if not strangers:
        return [ok("every file in the directories of specs has a name that engines read")]
    return [
        Finding(
            WARNING,
            f"{path} is no spec to an engine: its name does not end in .yaml or .json",
            subject=path,
            meaning=f"its devices do not exist: {_UNRESOLVABLE}",
            command=f"mv -n {path} {posixpath.splitext(path)[0]}.yaml  # or rm, if nobody needs it",
            looked_at=(path,),
        )
        for path in strangers
    ]


def _conflicts(node: ExaminedNode) -> Iterable[Finding]:
    files = specs.valid(node)
    if not files:
        return [absent(NONE)]
    owners: dict[tuple[str, str], list[str]] = {}
    for one in files:
        for name in one.device_names:
            owners.setdefault((one.directory, f"{one.kind}={name}"), []).append(one.path)
    found: dict[tuple[str, ...], list[str]] = {}
    for (_, name), paths in owners.items():
        if len(paths) > 1:
            found.setdefault(tuple(paths), []).append(name)
    if not found:
        return [ok("no device is described twice in one directory", *specs.directories(node))]
    return [
        Finding(
            FAILED,
            f"{' and '.join(paths)} both describe {', '.join(names[:3])}"
            + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
            subject=paths[-1],
            meaning="engines give neither of the two, and a device in conflict does not exist: "
            f"{_UNRESOLVABLE}",
            command=f"rm {_superfluous(node, paths)}",
            looked_at=paths,
        )
        for paths, names in found.items()
    ]


def _superfluous(node: ExaminedNode, paths: tuple[str, ...]) -> str:
    """Return the spec that nobody writes again: of an odd name, else the oldest."""

    def order(path: str) -> tuple[bool, float]:
        status = node.tree.status(path)
        return posixpath.basename(path) in _USUAL, status.mtime if status else 0.0

    return min(paths, key=order)


def _owners(node: ExaminedNode) -> Iterable[Finding]:
    places = [*specs.directories(node), *(one.path for one in specs.spec_files(node))]
    if not places:
        return [absent(NONE)]
    found = [finding for path in places for finding in _loose(node, path)]
    return found or [ok("only root may write the specs", *places)]


def _loose(node: ExaminedNode, path: str) -> Iterable[Finding]:
    status = node.tree.status(path)
    if status is None:
        return
    bits = status.permissions
    writers = bits & (_OTHERS if status.gid == 0 else _OTHERS | _GROUP)
    if status.uid == 0 and not writers:
        return
    whose = f"belongs to the user {status.uid}" if status.uid else f"has mode {bits:04o}"
    yield Finding(
        WARNING,
        f"{path} {whose}: others than root may write it",
        subject=path,
        meaning="who may write a spec is root on this node: its hooks run as root, and it mounts "
        "any file of the host",
        command=f"chown root:root {path} && chmod go-w {path}",
        looked_at=(path,),
    )


def _engines(node: ExaminedNode) -> Iterable[Finding]:
    files = specs.valid(node)
    programs = node.readings.document(node_readings.PROGRAMS)
    if not files or programs is None:
        return [absent("versions of engines cannot be told from files alone" if files else NONE)]
    podman = str((programs.get("podman") or {}).get("version") or "").split()
    version = next((word for word in podman if word[:1].isdigit()), "")
    limit = "0.4.0" if version.startswith(("4.0", "4.1", "4.2")) else "0.6.0"
    if not version.startswith("4."):
        return [ok("no engine here is known to be too old for these specs")]
    newer = [
        one
        for one in files
        if _order(one.document or {}) > spec_versions.VERSIONS.index(limit)
        and not specs.hidden(node, one)
    ]
    if not newer:
        return [ok(f"Podman {version} reads these specs")]
    return [
        Finding(
            FAILED,
            f"{one.path} needs CDI {spec_versions.lowest(one.document or {})}, and "
            f"Podman {version} reads none newer than {limit}",
            subject=one.path,
            meaning='Podman leaves the file out: "unmarshal CDI Spec: json: unknown field '
            f'\\"additionalGids\\"" with --log-level=debug, and {_UNRESOLVABLE}',
            command=f"nvidia-ctk cdi generate {_WITHOUT_GROUPS} --output={one.path}"
            if one.author != specs.GPUHOOK
            else f"chmod 0666 /dev/nvidia* && {specs.rewrite(node, one)}",
            looked_at=(one.path,),
        )
        for one in newer
    ]


def _order(document: dict[str, object]) -> int:
    return spec_versions.VERSIONS.index(spec_versions.lowest(document))


def _refresh(node: ExaminedNode) -> Iterable[Finding]:
    if not specs.has_refresh(node):
        return [absent("nvidia-cdi-refresh is not installed; it comes with NVIDIA's toolkit 1.18")]
    told = {name: service_state.unit(node, name) for name in _REFRESH_UNITS}
    if not any(told.values()):
        return [absent("units' states cannot be told from files alone")]
    failed = [name for name, unit in told.items() if unit.get("active") == "failed"]
    disabled = [name for name, unit in told.items() if unit.get("enabled") == "disabled"]
    if failed:
        return [
            Finding(
                WARNING,
                f"{' and '.join(failed)} failed ({told[failed[0]].get('result') or 'no reason'})",
                subject=failed[0],
                meaning="the spec in /var/run/cdi is missing or stale after a boot or a change of "
                f"the driver: {_UNRESOLVABLE}",
                command=f"systemctl reset-failed {' '.join(failed)} && systemctl restart "
                "nvidia-cdi-refresh.service && journalctl -u nvidia-cdi-refresh -n 20",
                looked_at=_REFRESH_UNITS,
            )
        ]
    if disabled:
        return [
            Finding(
                WARNING,
                f"{' and '.join(disabled)} is not enabled",
                subject=disabled[0],
                meaning="nobody writes /var/run/cdi/nvidia.yaml after a boot or for a new driver",
                command=f"systemctl enable --now {' '.join(disabled)}",
                looked_at=_REFRESH_UNITS,
            )
        ]
    return [ok("nvidia-cdi-refresh writes the spec when the driver changes", *_REFRESH_UNITS)]


CHECKS: tuple[Check, ...] = (
    Check("specs.present", SPECS, "A CDI spec describes the GPUs", _present),
    Check("specs.valid", SPECS, "Engines can read the CDI specs", _valid),
    Check("specs.names", SPECS, "Specs have names that engines look for", _names),
    Check("specs.conflicts", SPECS, "No device is described twice", _conflicts),
    Check("specs.owners", SPECS, "Nobody but root may write the specs", _owners),
    Check("specs.engines", SPECS, "The engines know the specs' version of CDI", _engines),
    Check("specs.refresh", SPECS, "NVIDIA's unit keeps its spec up to date", _refresh),
)
