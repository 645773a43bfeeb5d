# SPDX-License-Identifier: Apache-2.0
"""Who uses a GPU in containers of real runtimes that gpuhook has not made: `gpuhook ps`, `map`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contract.installation import Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.runtimes import ENGINES
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node

MIB = 1 << 20


def told(live: Live, node: SimulatedNode, *words: str) -> str:
    """Return what a command prints of the driver of `node` and the runtime of a container."""
    done = live.installation.gpuhook(*words, "--nvml-library", node.nvml_library, *live.roots)
    assert done.rc == 0, done.stderr
    return done.stdout


@ENGINES
def test_processes_of_a_container_that_others_made(
    engine: str, node8: Installation, tmp_path: Path
) -> None:
    """Its node is in config.json as a CDI spec of NVIDIA's puts it there; none in the ledger."""
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
        document = json.loads(told(live, node, "ps", "-o", "json"))
        drawn = told(live, node, "map", "--width", "200")
    (one,) = [one for one in document["containers"] if one["id"] == live.id]
    assert (one["gpus"], one["recorded"], one["route"]) == ([gpu.uuid], False, "unknown")
    assert (one["runtime"], one["pid"]) == (engine, one["usage"][0]["processes"][0]["pid"])
    assert (one["usage"][0]["used"], one["usage"][0]["percent"]) == (3000 * MIB, 0)
    assert not [one for one in document["processes"] if one["gpu"] == gpu.uuid]
    assert live.id[:12] in drawn
    assert "2.9 of 79.6 GiB" in drawn
