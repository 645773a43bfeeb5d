# SPDX-License-Identifier: Apache-2.0
"""Names of the resources in a container's limits."""

from __future__ import annotations

import re

from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

GPU, SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"
OBSOLETE = "alpha.kubernetes.io/nvidia-gpu"  # before device plugins
_VENDOR = "nvidia.com"
_OTHERS = ("gpu.intel.com", "intel.com", "habana.ai", "google.com", "aws.amazon.com")
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_PROFILES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.80gb")
USUAL = (GPU, SHARED_GPU, *(f"{_VENDOR}/mig-{profile}" for profile in _PROFILES))


def _is_native(name: str) -> bool:
    """Return whether a resource is of Kubernetes itself: "cpu", "x.kubernetes.io/y"."""
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return name in _NATIVE or name.startswith("hugepages-")
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def is_gpu(name: str) -> bool:
    """Return whether a resource is probably a GPU of a known vendor, by its domain or its name."""
    domain, slash, base = name.lower().rpartition("/")
    if not slash or _is_native(name) or domain in _OTHERS:
        return False
    is_vendors = any(domain == vendor.domain for vendor in vendors())
    return is_vendors or "gpu" in base or base.startswith("mig-")


def lacks_domain(name: str) -> bool:
    """Return whether a name is probably a GPU without its domain: "gpu", "mig-1g.5gb"."""
    return "/" not in name and ("gpu" in name.lower() or name.startswith("mig-"))


def is_usual(name: str) -> bool:
    """Return whether a device plugin offers the name by default."""
    return any(re.fullmatch(vendor.usual_resources, name) for vendor in vendors())


def request_of(vendor: Vendor) -> str:
    """Return what a container writes to request a GPU of a vendor."""
    return f"resources.limits: {{{vendor.domain}/gpu: 1}}"


def vendor_of(name: str) -> Vendor:
    """Return the vendor of whose GPUs a resource is, the first one for another domain."""
    domain = name.partition("/")[0]
    return next((one for one in vendors() if one.domain == domain), vendors()[0])
