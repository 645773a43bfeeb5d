# SPDX-License-Identifier: Apache-2.0
"""The objections to mounts that request GPUs, or that are device nodes of GPUs."""

from __future__ import annotations

from gpuhook.errors import printable
from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import kubelet_warning
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuhook.explain.pods.pod_requests import Objection, VolumeMount
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

_SHARED_NODES = "/dev/dri/"  # of the drivers of all vendors


def mount_objections(mounts: Collection[VolumeMount], where: str) -> Iterator[Objection]:
    """Yield the objections to mounts of GPU devices."""
    for mount in mounts:
        path = mount.path.rstrip("/")
        vendor = _named_by(path)
        if vendor is not None:
            yield kubelet_warning(
                "mounted-by-hand",
                f"mounts {printable(path)}: that requests a GPU from the runtime without the "
                "scheduler's knowledge",
                resource_names.request_of(vendor),
                where,
            )
            continue
        vendor = _node_vendor(mount.source) if mount.is_host else None
        if vendor is not None:
            yield kubelet_warning(
                "node-by-hand",
                f"mounts {printable(mount.source)} of the host: a mount does not allow the device. "
                "Opening it fails with Operation not permitted unless the container is privileged",
                resource_names.request_of(vendor),
                where,
            )


def _named_by(path: str) -> Vendor | None:
    """Return the vendor whose devices a mount at `path` names, None for another mount."""
    prefixes = ((one, one.vocabulary.mount_prefix) for one in vendors())
    return next((one for one, prefix in prefixes if f"{path}/".startswith(f"{prefix}/")), None)


def _node_vendor(path: str) -> Vendor | None:
    """Return the vendor of a device node by its path, the first one for a node of DRM."""
    if f"{path}/".startswith(_SHARED_NODES):
        return vendors()[0]
    return next((v for v in vendors() if path.startswith(v.traces.NODE_PREFIX)), None)
