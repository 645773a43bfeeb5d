# SPDX-License-Identifier: Apache-2.0
"""An installation of gpuhook on a simulated node with AMD GPUs, alone or beside NVIDIA's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuhook.vendors.amd.hot import amd_words
from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice
from tests.contract.installation import Installation
from tests.contract.views import View
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree
from tests.simulated.node import make_node

GROUP = 109  # of the render nodes in the profiles


@dataclass(frozen=True)
class AmdInstallation(Installation):
    """An installation whose host root has the tree of AMD GPUs."""

    tree: AmdTree | None = None

    @property
    def amd(self) -> AmdTree:
        """Return the tree."""
        assert self.tree is not None
        return self.tree

    @property
    def env(self) -> dict[str, str]:
        """Return the variables by which the programs use this node."""
        return {**super().env, "GPUHOOK_HOST_ROOT": str(self.amd.root)}

    @property
    def amd_spec(self) -> Path:
        """Return the CDI spec of the AMD GPUs."""
        return self.specs / "amd.json"

    def describe(self) -> None:
        """Write the CDI spec of the AMD GPUs, with the groups of their nodes."""
        words = ["--vendor", "amd", "--cdi-version", "0.7.0", "--host-root", str(self.amd.root)]
        self._prepared("generate-cdi", *words, "--output-file", str(self.amd_spec))

    def devices(self) -> list[AmdDevice]:
        """Return the devices in the order of their indices."""
        return [device for _, device in self.amd.node.devices()]

    def paths(self, *indices: int) -> set[str]:
        """Return the device nodes of a container with these devices."""
        found = {KFD}
        for index in indices:
            device = self.devices()[index]
            found |= {device.render_path, str(device.card_path)}
        return found

    def numbers(self, *indices: int) -> list[str]:
        """Return "major:minor" of the render nodes of these devices."""
        return [f"226:{self.devices()[index].render_minor}" for index in indices]


def amd_installation(place: Path, profile: str, base: Installation) -> AmdInstallation:
    """Return an installation with the programs of `base` on a node with AMD GPUs alone."""
    made = AmdInstallation(
        place, base.bindir, base.node, tree=amd_tree.build(place / "amd", profile, real_nodes=True)
    )
    made.configure()
    made.describe()
    return made


def beside_nvidia(
    place: Path, profile: str, base: Installation, **settings: Any
) -> AmdInstallation:
    """Return an installation with the programs of `base` on a node with a T4 and AMD GPUs."""
    node = make_node(place / "node", "t4")
    tree = amd_tree.build(node.host_root, profile, real_nodes=True)
    made = AmdInstallation(place, base.bindir, node, settings, tree=tree)
    made.configure()
    made.generate()
    made.describe()
    return made


def nodes_of(view: View) -> set[str]:
    """Return the paths of the nodes of AMD GPUs in a container."""
    return {path for path in view.nodes if amd_words.is_node(path)}


def asks_amd(value: str) -> list[str]:
    """Return the variable of a container that requests AMD GPUs."""
    return [f"AMD_VISIBLE_DEVICES={value}"]
