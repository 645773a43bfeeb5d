# SPDX-License-Identifier: Apache-2.0
"""The config.json with which containerd would call the runtime for a container of a pod.

It has the parts that matter for GPUs: variables, annotations, mounts, devices, capabilities. A
manifest does not have the image's variables; the caller can pass them. containerd itself adds the
CDI devices of a plugin; the runtime does not see them as requests.
"""

from __future__ import annotations

from typing import Any

from gpuhook.explain.pods.pod_requests import CDI_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.explain.pods.pod_requests import Allocated, PodRequest
    from gpuhook.vendors.plugin.vendor_part import NumberedNode

# The capabilities of unprivileged containers in containerd: oci.defaultUnixCaps.
_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
)
_SYS_ADMIN = "CAP_SYS_ADMIN"  # by which runtimes detect a privileged container
_PROC = {"destination": "/proc", "type": "proc", "source": "proc"}


def as_spec(
    asked: PodRequest,
    allocated: Allocated | None = None,
    nodes: Sequence[NumberedNode] = (),
    *,
    image_env: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the config.json for `asked` with what a device plugin has `allocated` to it.

    The pod's variables override the plugin's, and those override the image's ("NAME=value"). By
    default, containerd passes no annotation of the pod to the runtime. `nodes` are the device nodes
    of all vendors, with their numbers; an unknown device node is skipped.
    """
    given = allocated.allocation if allocated else None
    env = dict(entry.partition("=")[::2] for entry in image_env)
    env.update(given.envs if given else {})
    env.update(asked.env)
    return {
        "ociVersion": "1.1.0",
        "root": {"path": "rootfs"},
        "process": {
            "env": [f"{name}={value}" for name, value in env.items()],
            "capabilities": _capabilities(asked),
        },
        "annotations": _annotations(asked, given),
        "mounts": [_PROC, *_mounts(asked, given)],
        "linux": _linux(asked, given, nodes),
    }


def _capabilities(asked: PodRequest) -> dict[str, list[str]]:
    added = [name if name.startswith("CAP_") else f"CAP_{name}" for name in asked.capabilities]
    if asked.privileged or "CAP_ALL" in added:
        added = [_SYS_ADMIN, *added]
    held = list(dict.fromkeys([*_CAPABILITIES, *(name for name in added if name != "CAP_ALL")]))
    return dict.fromkeys(("bounding", "effective", "permitted"), held)


def _annotations(asked: PodRequest, given: Allocation | None) -> dict[str, str]:
    # containerd itself reads the CDI annotations of a plugin.
    answered = given.annotations.items() if given else ()
    return {name: value for name, value in answered if not name.startswith(CDI_PREFIX)} | {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": asked.container,
        "io.kubernetes.cri.image-name": asked.image,
        "io.kubernetes.cri.sandbox-name": asked.pod,
        "io.kubernetes.cri.sandbox-namespace": asked.namespace,
    }


def _mounts(asked: PodRequest, given: Allocation | None) -> list[dict[str, Any]]:
    """Return the mounts of the plugin, then those of the pod, in the kubelet's order."""
    answered = given.mounts if given else ()
    found = [
        *((m.container_path, m.host_path, m.read_only, True) for m in answered),
        *((m.path, m.source, m.read_only, m.is_host) for m in asked.mounts),
    ]
    return [
        {
            "destination": path,
            "type": "bind",
            # The kubelet creates the directories of volumes other than hostPath.
            "source": source if is_host else f"/var/lib/kubelet/pods/-/volumes/{source}",
            "options": ["rbind", "rprivate", "ro" if read_only else "rw"],
        }
        for path, source, read_only, is_host in found
    ]


def _linux(
    asked: PodRequest, given: Allocation | None, found: Sequence[NumberedNode]
) -> dict[str, Any]:
    if asked.privileged:  # all nodes of the host
        rule = {"allow": True, "access": "rwm"}
        devices = [_device(one, one.path) for one in found]
        return {"devices": devices, "resources": {"devices": [rule]}}
    passed = {device.host_path: device for device in (given.devices if given else ())}
    if not passed:
        return {}
    pairs = [(one, passed[one.host_path]) for one in found if one.host_path in passed]
    allowed = [
        {
            "allow": True,
            "type": "c",
            "major": one.major,
            "minor": one.minor,
            "access": device.permissions,
        }
        for one, device in pairs
    ]
    return {
        "devices": [_device(one, device.container_path) for one, device in pairs],
        "resources": {"devices": [{"allow": False, "access": "rwm"}, *allowed]},
    }


def _device(node: NumberedNode, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "uid": node.uid,
        "gid": node.gid,
    }
