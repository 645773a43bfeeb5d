# SPDX-License-Identifier: Apache-2.0
"""A node of a Debian release with AMD GPUs in place, at the paths of real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuhook.vendors.amd.hot import amd_words
from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract.debian_host import Release
from tests.contract.views import View, questions
from tests.engines.engine_node import EngineNode, started, with_packages
from tests.simulated import amd_tree
from tests.simulated.amd_tree import DRM_MAJOR, AmdTree
from tests.simulated.node import make_node

SPEC = "/var/run/cdi/amd.yaml"


@dataclass(frozen=True)
class AmdNode(EngineNode):
    """A node with the GPUs of `tree`, and those of `gpus` only if it `is_mixed`."""

    tree: AmdTree | None = None
    is_mixed: bool = False

    @property
    def amd(self) -> AmdTree:
        """Return the AMD GPUs."""
        assert self.tree is not None
        return self.tree

    @property
    def probe(self) -> list[str]:
        """Return the command of a container that tries to open each render node."""
        tries = [f"{DRM_MAJOR}:{one.render_minor}" for _, one in self.amd.node.devices()]
        return ["/probe", *questions(tries=tries)]

    def assert_nodes(self, seen: View, *indices: int) -> None:
        """Assert that a container has the nodes of these devices alone, and may open them alone.

        A try that the container may not make (it cannot make nodes) is no answer.
        """
        own = [one for _, one in self.amd.node.devices() if one.index in indices]
        nodes = {*(one.render_path for one in own), *(str(one.card_path) for one in own)}
        expected = {KFD, *nodes} if own else set()
        assert {path for path in seen.nodes if amd_words.is_node(path)} == expected
        assert all(seen.nodes[path].allowed for path in expected), seen.nodes
        minors = {one.render_minor for one in own}
        allowed = {name for name, answer in seen.tries.items() if answer not in ("EPERM", "EACCES")}
        assert allowed == {f"{DRM_MAJOR}:{minor}" for minor in minors}, seen.tries


@contextmanager
def amd_node(
    release: Release, place: Path, profile: str = "mi300x8", *, is_mixed: bool = False
) -> Iterator[AmdNode]:
    """Yield a node of the release with the GPUs of a profile, gpuhook's packages and its spec."""
    kind = replace(dump_file.load("t4"), masks_params=False)
    gpus = make_node(place / ("gpus" if is_mixed else "none"), kind)
    hardware = place / "gpus"
    tree = amd_tree.build(hardware, profile, real_nodes=True)
    for name in ("usr", "proc/driver", "sys"):
        (hardware / name).mkdir(parents=True, exist_ok=True)
    with started(release, place) as host:
        node = with_packages(AmdNode(host, release, gpus, tree=tree, is_mixed=is_mixed))
        node.check("gpuhook", "refresh")
        yield node
