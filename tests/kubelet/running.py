# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the device plugin as a process on a simulated node, with a kubelet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import TIME_SLICING, PluginProcess, plugin
from tests.simulated.node import SimulatedNode, make_node

Run = Callable[..., PluginProcess]


@pytest.fixture
def kubelet(plugins_path: Path) -> Iterator[Kubelet]:
    with Kubelet(plugins_path) as running:
        yield running


@pytest.fixture
def run(tmp_path: Path, kubelet: Kubelet) -> Iterator[Run]:
    """Return a function that starts a plugin with a profile, a configuration and variables.

    `change` changes the node before the start; `prefix` begins the command line. The plugin is
    stopped at the end of the test.
    """
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")
    with ExitStack() as stack:
        plugins: list[PluginProcess] = []

        def start(
            profile: str | Node = "t4",
            text: str = TIME_SLICING,
            *,
            change: Callable[[SimulatedNode], object] | None = None,
            prefix: Sequence[str] = (),
            **env: str,
        ) -> PluginProcess:
            node = make_node(tmp_path / "node", profile)
            if change is not None:
                change(node)
            made = plugin(tmp_path / "plugin", node, kubelet, text, env, prefix=prefix)
            plugins.append(stack.enter_context(made))
            return plugins[-1]

        yield start
        for one in plugins:  # a stop takes as long as one wait of NVML
            if one.process is not None:
                one.process.kill()
                one.process.wait()
