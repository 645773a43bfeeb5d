# SPDX-License-Identifier: Apache-2.0
"""The vendors, for the commands and services, which name none of them.

A vendor's modules are imported when they are needed. A vendor that fails does not affect another.
"""

from __future__ import annotations

from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.interfaces.vendor_interface import Vendor


def vendors() -> tuple[Vendor, ...]:
    """Return all vendors, in the order of the output of commands."""
    return (NvidiaVendor(), AmdVendor())


def vendor_of_resource(name: str) -> Vendor:
    """Return the vendor of a resource, "amd.com/gpu"."""
    domain = name.partition("/")[0]
    return next(vendor for vendor in vendors() if vendor.domain == domain)


def default_kind() -> str:
    """Return the kind of a CDI name without one, if no setting names it: the first vendor's."""
    return vendors()[0].vocabulary.default_kind


def domain_in(name: str) -> str:
    """Return the domain of the vendor in a CDI name, the first vendor's for a name of another."""
    domains = [vendor.domain for vendor in vendors()]
    own = f".{name.partition('/')[0]}"
    return next((domain for domain in domains if own.endswith(f".{domain}")), domains[0])


def further_absences(host_root: str) -> list[str]:
    """Return why the loaded drivers of vendors other than the first one have no GPU."""
    loaded = [one for one in vendors()[1:] if one.traces.running_driver(host_root) is not None]
    return [f"{one.title}: {reason}" for one in loaded if (reason := one.absence(host_root))]


def vendor_of(inventory: object) -> Vendor:
    """Return the vendor whose GPUs an inventory describes."""
    return next(vendor for vendor in vendors() if vendor.owns(inventory))


def vendor_of_node(node: VendorNode) -> Vendor:
    """Return the vendor whose devices a node has, whatever kind their specs have."""
    return next(vendor for vendor in vendors() if vendor.vocabulary is node.vocabulary)
