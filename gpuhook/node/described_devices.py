# SPDX-License-Identifier: Apache-2.0
"""The nodes of the further vendors: by their CDI specs, else as these would be written now.

A vendor whose GPUs need device nodes alone describes this node, or that of an inventory, in memory.
A vendor that fails has no devices here.
"""

from __future__ import annotations

from gpuhook.cdi import spec_list
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.hot import plan_nodes
from gpuhook.vendors.spec.spec_choices import DESCRIBED, SpecChoices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.interfaces.vendor_interface import Vendor


def further_devices(
    settings: Settings,
    inventory: str | None = None,
    *,
    is_described: Callable[[str], bool] | None = None,
    roots: tuple[str, str] | None = None,
) -> list[VendorNode]:
    """Return the node of each further vendor: this machine, or that of an inventory or of `roots`.

    `is_described` returns whether the node's specs of a kind apply; by default they do if there is
    one. `roots` are the host root and the dev root of a node without specs.
    """
    here = state.host_root()
    host_root, dev_root = roots or (here, here)
    is_here = inventory is None and host_root == here
    choices = SpecChoices(
        inventory, host_root=host_root, dev_root=dev_root, has_numbers=not is_here
    )
    described = {vendor.domain: spec for vendor in vendors() if (spec := _spec(vendor, choices))}

    def load(vendor: str, way: str) -> Registry:
        dirs = settings.spec_dirs
        layers = [] if inventory or roots else spec_list.plan_layers(dirs)
        found = Registry(dirs, layers, vendor, way)
        spec = described.get(vendor)
        if spec is None:
            return found
        if is_described is not None and not is_described(spec.kind):
            return Registry(dirs, [], vendor, way).over([spec])
        return found if any(one.kind == spec.kind for one in found.all()) else found.over([spec])

    return plan_nodes.further_nodes(load, is_here=is_here)


def _spec(vendor: Vendor, choices: SpecChoices) -> Compiled | None:
    """Return the spec of a vendor's devices, None if it has none or if that fails."""
    describe = vendor.spec_maker()
    try:
        if describe is None or vendor.absence(choices.host_root, choices.inventory):
            return None
        return compiled_spec.of_spec(DESCRIBED, describe(choices).spec)
    except GpuhookError:
        return None
