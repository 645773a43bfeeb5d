# SPDX-License-Identifier: Apache-2.0
"""GPU usage of containers that gpuhook did not create: `gpuhook ps`, `map`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contract.installation import Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.runtimes import ENGINES
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node

MIB = 1 << 20


def run_gpuhook(live: Live, node: SimulatedNode, *words: str) -> str:
    """Return the output of a command with the driver of `node` and the container's runtime."""
    done = live.installation.gpuhook(*words, "--nvml-library", node.nvml_library, *live.roots)
    assert done.rc == 0, done.stderr
    return done.stdout


@ENGINES
def test_usage_of_a_container_without_a_ledger_entry(
    engine: str, node8: Installation, tmp_path: Path
) -> None:
    """Only config.json has the node, as from a CDI spec of NVIDIA's."""
    node = make_node(tmp_path / "node", "h100x8", real_nodes=False)
    gpu = node.node.gpus[2]
    made = sleeping(tmp_path, env=[f"NVIDIA_VISIBLE_DEVICES={gpu.uuid}"])
    config = made.config()
    numbers = {"type": "c", "major": 195, "minor": gpu.minor}
    config["linux"]["devices"] = [{"path": f"/dev/nvidia{gpu.minor}", **numbers}]
    made.write(config)
    with started(made, node8, engine) as live:
        use = f"process compute {live.pid} {3000 * MIB}"
        stub_events.say(node, str(gpu.uuid), f"used {3000 * MIB}", use, "busy 50")
        document = json.loads(run_gpuhook(live, node, "ps", "-o", "json"))
        printed = run_gpuhook(live, node, "map", "--width", "200")
    (one,) = [one for one in document["containers"] if one["id"] == live.id]
    assert (one["gpus"], one["recorded"], one["route"]) == ([gpu.uuid], False, "unknown")
    assert (one["runtime"], one["pid"]) == (engine, one["usage"][0]["processes"][0]["pid"])
    assert (one["usage"][0]["used"], one["usage"][0]["percent"]) == (3000 * MIB, 0)
    assert not [one for one in document["processes"] if one["gpu"] == gpu.uuid]
    assert live.id[:12] in printed
    assert "2.9 of 79.6 GiB" in printed
