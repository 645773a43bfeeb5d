# SPDX-License-Identifier: Apache-2.0
"""GPUs that are joined by NVSwitches need a daemon of their driver's version."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, GPUS, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import service_state
from gpuhook.node import node_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

_NO_SWITCH = "this machine has no NVSwitch"
_SOCKET = "/run/nvidia-fabricmanager/socket"
_UNIT, _PROGRAM = "nvidia-fabricmanager.service", "nv-fabricmanager"
_PACKAGES = "/var/lib/dpkg/status"
_PACKAGE = "nvidia-fabricmanager"
_VERSION = "gpus.fabric-version"
_NOT_READY = (
    'nvidia-smi works, and CUDA does not: "system not yet initialized" '
    "(CUDA_ERROR_SYSTEM_NOT_READY, 802) in cuInit"
)


def _version(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.switches(node):
        return [absent(_NO_SWITCH, facts.SWITCHES, facts.PCI)]
    installed = _installed(node_tree.text(node.tree, _PACKAGES) or "")
    if not installed:
        said = f"no package {_PACKAGE} is in {_PACKAGES}; other packages cannot be told from files"
        return [absent(said, _PACKAGES)]
    module = facts.module_version(node)
    if module in installed.values():
        return [ok(f"the fabric manager is of the driver's version, {module}", _PACKAGES)]
    if service_state.runs(node, _UNIT, _PROGRAM):
        return [ok("a fabric manager runs: with another driver's it would have stopped", _UNIT)]
    names = ", ".join(f"{name} {version}" for name, version in installed.items())
    branch = module.partition(".")[0]
    return [
        Finding(
            FAILED,
            f"{names} is installed, and the driver is {module}: they must be of one version",
            meaning=f"the fabric manager stops as soon as it starts; then {_NOT_READY}",
            command=f"apt-get install '{_PACKAGE}-{branch}={module}-*' && "
            "systemctl enable --now nvidia-fabricmanager.service",
            looked_at=(_PACKAGES, facts.VERSION),
        )
    ]


def _installed(status: str) -> dict[str, str]:
    """Return the versions, without Debian's revision, of the fabric manager's packages."""
    found = {}
    for paragraph in status.split("\n\n"):
        if not paragraph.startswith(f"Package: {_PACKAGE}"):
            continue
        fields = dict(line.partition(": ")[::2] for line in paragraph.splitlines())
        if fields.get("Status", "").endswith(" installed") and "dev" not in fields["Package"]:
            found[fields["Package"]] = fields.get("Version", "").partition("-")[0]
    return found


def _fabric(node: ExaminedNode) -> Iterable[Finding]:
    switches = facts.switches(node)
    if not switches:
        return [absent(_NO_SWITCH, facts.SWITCHES, facts.PCI)]
    runs = service_state.runs(node, _UNIT, _PROGRAM)
    if runs is None:
        said = "whether the fabric manager runs cannot be told from files alone"
        return [absent(said, _SOCKET)]
    if runs:
        return [ok(f"the fabric manager runs for {len(switches)} NVSwitches", facts.SWITCHES)]
    return [
        Finding(
            FAILED,
            f"the fabric manager does not run, on a machine with NVSwitches ({len(switches)})",
            meaning=_NOT_READY,
            command="systemctl enable --now nvidia-fabricmanager.service && "
            "journalctl -u nvidia-fabricmanager -n 20",
            looked_at=(_UNIT, facts.SWITCHES),
        )
    ]


CHECKS: tuple[Check, ...] = (
    Check(
        _VERSION,
        GPUS,
        "The fabric manager is of the driver's version",
        _version,
        needs=("driver.module", "driver.version"),
    ),
    Check(
        "gpus.fabric",
        GPUS,
        "The fabric manager runs where GPUs are joined by NVSwitches",
        _fabric,
        needs=("driver.module", "driver.version", _VERSION),
    ),
)
