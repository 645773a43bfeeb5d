# SPDX-License-Identifier: Apache-2.0
"""A call of generate-cdi for AMD GPUs."""

from __future__ import annotations

import os
from functools import partial

from gpuhook.cdi import spec_notes
from gpuhook.vendors.amd.spec import amd_node
from gpuhook.vendors.spec_call import DescribedSpecs, SpecCall
from gpuhook.vendors.spec_choices import SpecChoices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.spec_call import SpecOptions

OWN_OPTIONS = frozenset({"cdi_version"})


def spec_call(options: SpecOptions) -> SpecCall:
    """Return the call with these options; describing raises what amd_node.describe() raises."""
    return SpecCall(partial(_described, options))


def _described(options: SpecOptions) -> DescribedSpecs:
    # The settings and the variables name the /dev of another vendor's driver container.
    dev_root = options.dev_root if "dev_root" in options.named else None
    choices = SpecChoices(
        inventory=options.inventory,
        host_root=options.host_root,
        dev_root=os.path.abspath(dev_root) if dev_root else options.host_root,
        device_ids=options.device_ids,
        with_all=options.with_all,
        capabilities=options.capabilities,
        newest=options.own["cdi_version"],
    )
    found = amd_node.describe(choices)
    spec = found.spec
    if options.inventory is None:
        spec = spec_notes.noted(spec, found.token, options.words, choices.newest)
    return DescribedSpecs(spec, found.warnings)
