# SPDX-License-Identifier: Apache-2.0
"""The fabric manager: a daemon that GPUs with NVSwitches need, in the version of their driver."""

from __future__ import annotations

from gpuhook.node_facts import program_facts
from gpuhook.node_facts.check import FAILED, Finding, absent, check, ok, unless
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings

_SOCKET = "/run/nvidia-fabricmanager/socket"
_UNIT, _PROGRAM = "nvidia-fabricmanager.service", "nv-fabricmanager"
_PACKAGES = "/var/lib/dpkg/status"
_PACKAGE = "nvidia-fabricmanager"
_VERSION = "gpus.fabric-version"
_NOT_READY = (
    'nvidia-smi works, but CUDA does not: "system not yet initialized" '
    "(CUDA_ERROR_SYSTEM_NOT_READY, 802) in cuInit"
)


def _no_switch(node: ExaminedNode) -> Finding | None:
    if facts.switches(node):
        return None
    return absent("this machine has no NVSwitch", facts.SWITCHES, facts.PCI)


@check(
    _VERSION,
    "The fabric manager has the driver's version",
    needs=("driver.module", "driver.version"),
)
@unless(_no_switch)
def _version(node: ExaminedNode) -> Findings:
    installed = _installed(node_tree.text(node.tree, _PACKAGES) or "")
    if not installed:
        message = (
            f"no package {_PACKAGE} is in {_PACKAGES}; other package formats are not supported"
        )
        return absent(message, _PACKAGES)
    module = facts.module_version(node)
    if module in installed.values():
        return ok(f"the fabric manager has the driver's version, {module}", _PACKAGES)
    if program_facts.runs(node, _UNIT, _PROGRAM):
        return ok("a fabric manager is running: with another version, it would have stopped", _UNIT)
    names = ", ".join(f"{name} {version}" for name, version in installed.items())
    branch = module.partition(".")[0]
    return Finding(
        FAILED,
        f"{names} is installed, but the driver is {module}: the versions must match",
        meaning=f"the fabric manager stops as soon as it starts; then {_NOT_READY}",
        command=f"apt-get install '{_PACKAGE}-{branch}={module}-*' && "
        "systemctl enable --now nvidia-fabricmanager.service",
        looked_at=(_PACKAGES, facts.VERSION),
    )


def _installed(status: str) -> dict[str, str]:
    """Return package -> version, without Debian's revision, of the fabric manager."""
    found = {}
    for paragraph in status.split("\n\n"):
        if not paragraph.startswith(f"Package: {_PACKAGE}"):
            continue
        fields = dict(line.partition(": ")[::2] for line in paragraph.splitlines())
        if fields.get("Status", "").endswith(" installed") and "dev" not in fields["Package"]:
            found[fields["Package"]] = fields.get("Version", "").partition("-")[0]
    return found


@check(
    "gpus.fabric",
    "The fabric manager runs on a machine with NVSwitches",
    needs=("driver.module", "driver.version", _VERSION),
)
@unless(_no_switch)
def _fabric(node: ExaminedNode) -> Findings:
    switches = facts.switches(node)
    runs = program_facts.runs(node, _UNIT, _PROGRAM)
    if runs is None:
        message = "the files of a node do not show whether the fabric manager is running"
        return absent(message, _SOCKET)
    if runs:
        return ok(f"the fabric manager is running for {len(switches)} NVSwitches", facts.SWITCHES)
    return Finding(
        FAILED,
        f"the fabric manager is not running, but the machine has {len(switches)} NVSwitches",
        meaning=_NOT_READY,
        command="systemctl enable --now nvidia-fabricmanager.service && "
        "journalctl -u nvidia-fabricmanager -n 20",
        looked_at=(_UNIT, facts.SWITCHES),
    )


CHECKS = (_version, _fabric)
