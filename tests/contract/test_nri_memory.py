# SPDX-License-Identifier: Apache-2.0
"""Memory limits of device plugins for pods that get their GPUs by NRI."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.request.parse import Vocabulary
from tests.contract.installation import Installation
from tests.contract.limiting import enforced_limits
from tests.contract.nri_node import SUITES, nri_node


@pytest.mark.parametrize("suite", SUITES)
def test_grant_is_enforced(suite: str, node8: Installation, tmp_path: Path) -> None:
    """The driver has the limit for the cgroup of the container, and the ledger records it."""
    limit = MemoryLimit(str(node8.gpu(2).uuid), 4096 * MIB, 1024 * MIB, is_asked=False)
    mount = AllocatedMount(mount_path(Vocabulary.memory_prefix, limit), "/dev/null")
    with nri_node(node8, tmp_path, suite, cgroup="v2") as made, made.plugin():
        with made.cri.pod("limited", "runc") as pod:
            given = made.assign(pod, limit.device)
            sleeping = made.sleeping(pod, Allocation(given.envs, (mount,)))
            (holder,) = [one for one in made.node.holders() if one["id"] == sleeping.id]
            limits = enforced_limits(made.node, holder["pid"])
        assert limits == {limit.device: (4096, 1024)}, holder
        assert (holder["pod"], holder["gpus"]) == ("limited", [limit.device])
        (record,) = holder["memory"]
        assert (record["limit"], record["by"]) == (limit.hard, "driver")
