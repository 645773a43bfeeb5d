# SPDX-License-Identifier: Apache-2.0
"""Names and amounts of the resources in a container's limits.

Source of quantities ("1", "500m", "2Gi", "1e3"): the grammar in
k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

import re
from fractions import Fraction

TYPE_CHECKING = False

GPU, SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"
OBSOLETE = "alpha.kubernetes.io/nvidia-gpu"  # before device plugins
_VENDOR = "nvidia.com"
_OTHERS = ("amd.com", "gpu.intel.com", "intel.com", "habana.ai", "google.com", "aws.amazon.com")
_NATIVE = ("cpu", "memory", "ephemeral-storage")
# The names that NVIDIA's plugin and gpuhook offer by default.
_USUAL = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|pgpu|mig-[1-7]g\.[0-9]{1,3}gb([.+][a-z0-9.]+)?(\.shared)?)"
)
_PROFILES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.80gb")
USUAL = (GPU, SHARED_GPU, *(f"{_VENDOR}/mig-{profile}" for profile in _PROFILES))


def is_native(name: str) -> bool:
    """Return whether a resource is of Kubernetes itself: "cpu", "x.kubernetes.io/y"."""
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return name in _NATIVE or name.startswith("hugepages-")
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def is_extended(name: str) -> bool:
    """Return whether a name is an extended resource: integers only, requests equal limits."""
    return "/" in name and not is_native(name)


def is_gpu(name: str) -> bool:
    """Return whether a resource is probably a GPU of NVIDIA, by its domain or its name."""
    domain, slash, base = name.lower().rpartition("/")
    if not slash or is_native(name) or domain in _OTHERS:
        return False
    return domain == _VENDOR or "gpu" in base or base.startswith("mig-")


def lacks_domain(name: str) -> bool:
    """Return whether a name is probably a GPU without its domain: "gpu", "mig-1g.5gb"."""
    return "/" not in name and ("gpu" in name.lower() or name.startswith("mig-"))


def is_usual(name: str) -> bool:
    """Return whether a device plugin offers the name by default."""
    return _USUAL.fullmatch(name) is not None


MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_FORM = re.compile(r"([+-]?)([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})([A-Za-z]*)([+-]?[0-9]*)")
_SCALES: dict[str, Fraction] = {
    **{f"{suffix}i": Fraction(1024) ** n for n, suffix in enumerate("KMGTPE", 1)},
    **{suffix: Fraction(1000) ** n for n, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1, 1000) ** n for n, suffix in enumerate("mun", 1)},
    "": Fraction(1),
}
_LARGEST_EXPONENT = 40


def quantity(text: str) -> Fraction | None:
    """Return the number of a quantity, None for a malformed one.

    >>> quantity("1500m")
    Fraction(3, 2)
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    sign, digits, suffix, exponent = found.groups()
    if exponent or suffix == "e":
        if suffix not in ("e", "E") or exponent in ("", "+", "-"):
            return None
        power = int(exponent[:4])
        if abs(power) > _LARGEST_EXPONENT:
            return None
        scale = Fraction(10) ** power
    elif suffix in _SCALES:
        scale = _SCALES[suffix]
    else:
        return None
    number = Fraction(digits) * scale
    return -number if sign == "-" else number
