# SPDX-License-Identifier: Apache-2.0
"""The CDI spec of NVIDIA's devices for the device plugin, with the driver's files."""

from __future__ import annotations

from gpuhook.vendors.nvidia.hot.vocabulary import PLUGIN_VENDOR
from gpuhook.vendors.nvidia.spec.generate_options import HOOKS, Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def plugin_spec(node: Node, hook: str | None, host_root: str) -> tuple[Spec, tuple[str, ...]]:
    """Return the spec of `node` by UUIDs, and warnings; `hook` None: without hooks.

    Raises GH1511 to GH1513.
    """
    gpuhooks, none = HOOKS
    choices = Choices(
        vendor=PLUGIN_VENDOR,
        strategies=("uuid",),
        with_all=False,
        hooks=none if hook is None else gpuhooks,
        hook_path=hook or DEFAULT_HOOK_PATH,
        host_root=host_root,
    )
    described = describe(node, choices)
    return described.spec, described.warnings
