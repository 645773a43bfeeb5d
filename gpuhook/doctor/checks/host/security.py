# SPDX-License-Identifier: Apache-2.0
"""SELinux and AppArmor: whether they allow containers to use GPUs."""

from __future__ import annotations

from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok
from gpuhook.node_facts.engine_facts import containerds, crios, dockers, homes, podmans
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.sources.node_tree import line, matching
from gpuhook.vendors.nvidia.doctor.facts import driver_facts, driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.driver.driver_locations import OPERATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode

ENFORCE = "/sys/fs/selinux/enforce"
# Each of them allows containers the device node types that policies give to NVIDIA GPUs.
BOOLEANS = ("container_use_devices", "container_use_xserver_devices")
_MODULES = "/var/lib/selinux/*/active/modules/*/nvidia*"
_USERNS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_PROFILES = {"podman": "podman", "rootlesskit": "*rootlesskit"}


def _confining(node: ExaminedNode) -> list[str]:
    """Return the engines that give their containers an SELinux label."""
    found = [
        "podman" if podmans(node) else "",
        "CRI-O" if any(one.read.has_selinux for one in crios(node)) else "",
        "Docker" if any(one.read.has_selinux for one in dockers(node)) else "",
        "containerd"
        if any(one.read.cri.get("enable_selinux") is True for one in containerds(node))
        else "",
    ]
    return [name for name in found if name]


@check("host.selinux", "SELinux allows containers to use GPUs")
def _selinux(node: ExaminedNode) -> Finding:
    if line(node.tree, ENFORCE) != "1":
        return absent("SELinux is not enforcing", ENFORCE)
    if not (driver_facts.has_gpu(node) or gpu_loss.missing_gpus(node)):
        return absent("this machine has no NVIDIA GPU", ENFORCE)
    engines = _confining(node)
    if not engines:
        return absent("SELinux is enforcing, and no engine labels its containers", ENFORCE)
    if driver_user_space.driver_user_space(node).root == OPERATOR:
        labels = f"the driver container labels the nodes below {OPERATOR} for containers"
        return ok(f"SELinux is enforcing, and {labels}", ENFORCE)
    places = [f"/sys/fs/selinux/booleans/{name}" for name in BOOLEANS]
    are_on = [name for name, at in zip(BOOLEANS, places, strict=True) if _is_on(node, at)]
    if by := are_on or matching(node.tree, _MODULES):
        message = f"SELinux is enforcing, and {', '.join(by)} allows containers to use GPUs"
        return ok(message, ENFORCE, *places)
    return Finding(
        FAILED,
        f"SELinux is enforcing, {' and '.join(BOOLEANS)} are off, and {', '.join(engines)}"
        " labels containers",
        subject="selinux",
        meaning="containers have the device nodes of GPUs but cannot open them: Failed to"
        " initialize NVML: Insufficient Permissions",
        command=f"setsebool -P {_boolean(node)} on"
        " # or for one container: podman run --security-opt label=disable",
        looked_at=(ENFORCE, *places),
    )


def _boolean(node: ExaminedNode) -> str:
    """Return the narrower boolean that the node's policy has."""
    known = [name for name in BOOLEANS if node.tree.status(f"/sys/fs/selinux/booleans/{name}")]
    return known[-1] if known else BOOLEANS[0]


def _is_on(node: ExaminedNode, path: str) -> bool:
    """Return whether a boolean is on; its file has the current value, then the pending one."""
    return line(node.tree, path).startswith("1")


@check("host.apparmor", "AppArmor allows rootless engines")
def _apparmor(node: ExaminedNode) -> Iterable[Finding]:
    if line(node.tree, "/sys/module/apparmor/parameters/enabled") != "Y":
        yield absent("AppArmor is off", "/sys/module/apparmor/parameters/enabled")
        return
    if line(node.tree, _USERNS) != "1":
        yield ok("AppArmor allows users to create namespaces", _USERNS)
        return
    engines = {
        "podman": bool(podmans(node) and homes(node.tree)),
        "rootlesskit": program(node.tree, "rootlesskit") is not None,
    }
    lacking = [
        name
        for name, is_here in engines.items()
        if is_here and not matching(node.tree, f"/etc/apparmor.d/{_PROFILES[name]}")
    ]
    for name in lacking:
        path = program(node.tree, name) or name
        profile = f"abi <abi/4.0>,\\nprofile {name} {path} flags=(unconfined) {{ userns, }}\\n"
        yield Finding(
            WARNING,
            f"{_USERNS} is 1, but /etc/apparmor.d has no profile for {path}",
            subject=name,
            meaning="rootless containers do not start: AppArmor denies user namespaces",
            command=f"printf '{profile}' > /etc/apparmor.d/{name} && systemctl reload apparmor",
            looked_at=(_USERNS, "/etc/apparmor.d"),
        )
    if not lacking:
        yield ok("the rootless engines have AppArmor profiles", _USERNS, "/etc/apparmor.d")


CHECKS = (_selinux, _apparmor)
