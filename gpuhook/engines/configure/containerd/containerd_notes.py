# SPDX-License-Identifier: Apache-2.0
"""What is told where containerd's configuration is made anew by others at each boot."""

from __future__ import annotations

from gpuhook.engines.configure import toml_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.configure.toml_edit import Setting


def nodeadm(settings: Iterable[Setting]) -> str:
    """Return the NodeConfig by which nodeadm writes the same at each boot of an EKS node."""
    lines: list[str] = []
    for one in settings:
        if isinstance(one.value, dict):
            lines += toml_text.table_lines(one.path, one.value)
        elif one.value is not None and len(one.path) > 1:
            lines += toml_text.table_lines(one.path[:-1], {one.path[-1]: one.value})
    text = "\n".join(f"      {line}" for line in lines)
    return (
        "nodeadm writes this file anew at each boot. So that this lasts without the DaemonSet, put "
        "it into the node's user data:\n"
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  containerd:\n    config: |\n"
        f"{text}"
    )
