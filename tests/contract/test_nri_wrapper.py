# SPDX-License-Identifier: Apache-2.0
"""A pod whose RuntimeClass is gpuhook-runtime, on a node with the NRI plugin: both see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.request.parse import Vocabulary
from tests.contract.installation import Installation
from tests.contract.limiting import enforced_limits
from tests.contract.nri_node import SUITES, nri_node


@pytest.mark.parametrize("suite", SUITES)
def test_the_plugin_wins(suite: str, node8: Installation, tmp_path: Path) -> None:
    """The container has its devices, hooks and limit once, and one entry, that of the plugin."""
    limit = MemoryLimit(str(node8.gpu(2).uuid), 4096 * MIB, 1024 * MIB, is_asked=False)
    mount = AllocatedMount(mount_path(Vocabulary.memory_prefix, limit), "/dev/null")
    with (
        nri_node(node8, tmp_path, suite, cgroup="v2") as made,
        made.plugin(),
        made.cri.pod("limited", "nvidia") as pod,
    ):
        given = made.assign(pod, limit.device)
        sleeping = made.sleeping(pod, Allocation(given.envs, (mount,)))
        task = made.place / "state/io.containerd.runtime.v2.task/k8s.io" / sleeping.id
        spec = json.loads((task / "config.json").read_text(encoding="utf-8"))
        (holder,) = [one for one in made.node.holders() if one["id"] == sleeping.id]
        limits = enforced_limits(made.node, holder["pid"])
        assert len(made.node.entries()) == 1
    assert limits == {limit.device: (4096, 1024)}
    assert {stage: len(found) for stage, found in spec["hooks"].items()} == {
        "createRuntime": 1,
        "createContainer": 1,
    }
    mounts = [one["destination"] for one in spec["mounts"]]
    assert len(mounts) == len(set(mounts))
    assert (holder["route"], holder["runtime"]) == ("nri", "/usr/sbin/runc")
    assert holder["gpus"] == [limit.device]
    assert holder["requested"] == [limit.device]
    assert holder["source"] == "NVIDIA_VISIBLE_DEVICES"
    (record,) = holder["memory"]
    assert (record["limit"], record["by"]) == (limit.hard, "driver")
