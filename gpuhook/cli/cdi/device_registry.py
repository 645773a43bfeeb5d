# SPDX-License-Identifier: Apache-2.0
"""The registry of the CDI specs in which a device is looked up, with the advice of its vendor."""

from __future__ import annotations

from gpuhook.cdi.hot.registry import Registry
from gpuhook.vendors.catalogue import domain_in, vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.compiled_spec import Compiled


def device_registry(name: str, dirs: list[str], layers: list[list[Compiled]]) -> Registry:
    """Return the registry of `layers`, the specs in `dirs`, for the qualified `name`."""
    return Registry(dirs, layers, domain_in(name), _way(name, dirs))


def _way(name: str, dirs: list[str]) -> str:
    """Return the advice on a missing spec of a further vendor's GPUs, "" for the usual one."""
    kind = name.partition("=")[0]
    own = [one.name for one in vendors()[1:] if one.vocabulary.default_kind == kind and dirs]
    return f"run `gpuhook refresh`, which writes {dirs[-1]}/{own[0]}.yaml" if own else ""
