# SPDX-License-Identifier: Apache-2.0
"""Claims of AMD GPUs: the kernel's limit, by the hook that the driver adds to the CDI spec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.device_plugin import reconcile
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.host.hot import state
from gpuhook.request.memory_request import MIB
from tests.contract.bundles import Bundles
from tests.contract.claim_node import ClaimNode, given
from tests.contract.dmem_node import DmemNode, serving
from tests.contract.installation import Installation
from tests.contract.limiting import entry
from tests.contract.live import WAIT, started
from tests.contract.runtimes import ENGINES
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree
from tests.unit.dra.pool.test_sharing_form import FAIR, REPLICAS


@pytest.fixture(scope="module")
def tree(spoiled: Installation) -> AmdTree:
    """Return the files of eight AMD GPUs, on a node with eight GPUs of NVIDIA."""
    return amd_tree.build(spoiled.node.host_root, "mi300x8", real_nodes=True)


@pytest.fixture
def node(mine: Installation, tree: AmdTree, tmp_path: Path) -> Iterator[DmemNode]:
    with serving(mine, tree, tmp_path) as made:
        yield made


@ENGINES
@pytest.mark.parametrize("way", ["hook", "wrapper"])
@pytest.mark.parametrize(("text", "memory"), [(REPLICAS, ""), (FAIR, ""), (REPLICAS, "6Gi")])
def test_a_claim_has_its_share_of_the_memory(
    engine: str,
    way: str,
    text: str,
    memory: str,
    node: DmemNode,
    bundle_of: Bundles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "missing_driver_limits", lambda *_: ("", ""))
    mine = node.installation
    flags = f"flags:\n  plugin: {{nvidiaCTKPath: {mine.bindir}/gpuhook-hook}}"
    flags += f"\n  nvidiaDriverRoot: {mine.node.driver_root}\n  nvidiaDevRoot: {mine.node.dev_root}"
    text = text.replace("flags:", flags).replace("nvidia.com/gpu", "amd.com/gpu")
    launch = Launch(
        host_root=str(node.tree.root),
        nvml_library=mine.node.nvml_library,
        cdi_directory=str(tmp_path / "cdi"),
        node_name="node1",
    )
    driver = ClaimNode(tmp_path / "driver", launch, text, "amd.com")
    found = next(
        one
        for one in driver.view.state("amd.com").pool.devices
        if one.device.uuid == node.device(3)
    )
    claim = driver.prepare("a", found.name, memory=memory)
    env = [f"{state.HOST_ROOT_ENV}={node.tree.root}"]
    made = given(bundle_of("debian", WAIT), driver, claim, root=str(node.tree.root), hook_env=env)
    total = node.tree.node.gpus[3].vram_bytes or 0
    expected = (total - (256 * MIB if text.count("fair") else 0)) // 4 // MIB * MIB
    program = mine.runtime if way == "wrapper" else engine
    with started(made, mine, engine, "v2", *mine.command_with_state(program)) as live:
        limits = node.limits(live.pid)
        recorded = entry(mine)
    assert limits == {node.region(3): str(6 << 30 if memory else expected)}
    assert recorded["replicas"] == [f"{node.device(3)}::0"]
    assert [one["device"] for one in recorded["claims"]] == [node.device(3)]
    assert recorded["memory"][0]["by"] == "kernel"
