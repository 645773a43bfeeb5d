# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the DRA drivers as a process on a simulated node, with a kubelet and an API server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.cluster_api.cluster_server import Cluster, node, serving
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import NODE, DraProcess, dra_process
from tests.simulated import amd_tree
from tests.simulated.node import SimulatedNode, make_node

RunDra = Callable[..., DraProcess]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    place = tmp_path / "account"
    place.mkdir()
    with serving(place, secure=True) as found:
        found.store.add(node(NODE))
        yield found


@pytest.fixture
def dra_kubelet(short_path: Path) -> Iterator[DraKubelet]:
    with DraKubelet(short_path) as running:
        yield running


@pytest.fixture
def run_dra(tmp_path: Path, dra_kubelet: DraKubelet, cluster: Cluster) -> Iterator[RunDra]:
    """Return a function that starts the drivers with a profile, a configuration and variables.

    `profile` is of NVIDIA GPUs, "" for none; `has_amd` adds eight AMD GPUs to the node, which
    `change` changes before the start.
    """
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")
    with ExitStack() as stack:

        def start(
            profile: str | Node = "h100x8",
            text: str = "version: v1\n",
            *,
            has_amd: bool = False,
            change: Callable[[SimulatedNode], object] | None = None,
            **env: str,
        ) -> DraProcess:
            made = make_node(tmp_path / "node", profile) if profile else None
            if made is not None and change is not None:
                change(made)
            if has_amd:
                root = amd_tree.build(tmp_path / "node", "mi300x8", real_nodes=True).root
                env = {"GPUHOOK_HOST_ROOT": str(root), "GPUHOOK_DEV_ROOT": str(root), **env}
            place = tmp_path / f"driver-{env.get('POD_UID', '')}"
            process = dra_process(place, made, dra_kubelet, cluster, text, env)
            return stack.enter_context(process)

        yield start
