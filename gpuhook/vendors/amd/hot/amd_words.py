# SPDX-License-Identifier: Apache-2.0
"""The variables, paths and kinds with which containers request AMD GPUs.

AMD has no driver files in containers, no capabilities and no legacy images: the devices are
/dev/kfd, which all GPUs share, and the DRM nodes of each GPU or partition.
"""

from __future__ import annotations

from gpuhook.request.parse import Vocabulary
from gpuhook.vendors.amd.hot import device_ids

VENDOR = "amd.com"
KIND = VENDOR + "/gpu"
# The annotation of a CDI spec with the state of its host, see amd_token.py.
TOKEN = "io.gpuhook.token"  # noqa: S105 # not a secret
VOCABULARY = Vocabulary(
    devices_env="AMD_VISIBLE_DEVICES",
    capabilities_env="",
    mount_prefix="/var/run/amd-container-devices",
    image_version_env="",
    image_requirement_env="",
    default_kind=KIND,
    example_node="/dev/dri/renderD128",
    memory_request_env="AMD_GPU_MEMORY_REQUEST",  # MiB
    memory_limit_env="AMD_GPU_MEMORY_LIMIT",
    extras={},
    extra_mounts={},
    privileged_kinds=(),
    normalized=device_ids.normalized,
)
# An engine that applied a CDI spec handled the request: no runtime below it adds other GPUs.
HANDLED = VOCABULARY.devices_env + "=void"
KFD, DRM = "/dev/kfd", "/dev/dri/"
_RESOURCE = "DOCKER_RESOURCE_"  # Docker Swarm's variable of a generic resource has its kind


def is_own(name: str) -> bool:
    """Return whether a device's name is a CDI name of this vendor, or of a subdomain of it."""
    kind, equals, _ = name.partition("=")
    vendor, slash, _ = kind.partition("/")
    return bool(equals and slash) and (vendor == VENDOR or vendor.endswith("." + VENDOR))


def is_own_resource(variable: str, value: str) -> bool:
    """Return whether a variable of an orchestrator names AMD devices.

    Its kind is AMD_GPU or the like; a kind without a vendor, such as GPU, is decided by the value:
    every item is a unique id in AMD's form.
    """
    kind = variable.removeprefix(_RESOURCE)
    if "AMD" in kind.upper().replace("-", "_").replace(".", "_").split("_"):
        return True
    items = [item.strip().lower() for item in value.split(",")]
    return all(map(_is_unique_id, items))


def _is_unique_id(item: str) -> bool:
    is_written_so = item.startswith(("0x", device_ids.UUID.lower()))
    return is_written_so and any(
        one.startswith(device_ids.UUID) for one in device_ids.spellings(item)
    )


def is_node(path: str) -> bool:
    """Return whether `path` is that of a device node of this vendor's driver.

    Other drivers have DRM nodes as well: see config_devices.node_test().
    """
    return path == KFD or (path.startswith(DRM) and "/.." not in path)


def is_gpu_node(path: str) -> bool:
    """Return whether `path` is the node of one GPU or partition, not that of all of them."""
    return is_node(path) and path != KFD
