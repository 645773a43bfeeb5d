# SPDX-License-Identifier: Apache-2.0
"""Claims from the configuration to the limit of a container, by the CDI hook and the wrapper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin import reconcile
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.request.memory_request import MIB
from tests.contract.bundles import Bundle, Bundles
from tests.contract.claim_node import OWN, ClaimNode, given
from tests.contract.installation import Installation
from tests.contract.limiting import LIMIT, enforced_limits, entry, uuid
from tests.contract.live import WAIT, Live, started
from tests.contract.runtimes import ENGINES, run
from tests.kubelet.allocated_claims import uid_of
from tests.simulated import stub_limits
from tests.unit.dra.pool.test_sharing_form import FAIR, REPLICAS

WAYS = pytest.mark.parametrize("way", ["hook", "wrapper"])
Start = Callable[[str], ClaimNode]


@pytest.fixture
def start(mine: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts the driver with a configuration on the node.

    The containers have cgroup v2, which this machine may not have.
    """
    monkeypatch.setattr(reconcile, "missing_driver_limits", lambda *_: ("", ""))
    node = mine.node
    launch = Launch(
        host_root=node.host_root,
        nvml_library=node.nvml_library,
        cdi_directory=str(tmp_path / "cdi"),
        node_name="node1",
    )
    flags = f"""flags:
  nvidiaDriverRoot: {node.driver_root}
  nvidiaDevRoot: {node.dev_root}
  plugin: {{nvidiaCTKPath: {mine.bindir}/gpuhook-hook}}"""

    def make(text: str) -> ClaimNode:
        return ClaimNode(tmp_path / "driver", launch, text.replace("flags:", flags))

    return make


def start_container(made: Bundle, mine: Installation, engine: str, way: str) -> Any:
    program = mine.runtime if way == "wrapper" else engine
    return started(made, mine, engine, "v2", *mine.command_with_state(program))


def limit_of(live: Live, mine: Installation, index: int) -> int:
    """Return the hard limit of the container for a GPU, in MiB."""
    return enforced_limits(mine, live.pid)[uuid(mine, index)][0]


def gpu(mine: Installation, index: int) -> str:
    """Return the name of a GPU in its pool: it has the minor number."""
    return f"gpu-{mine.gpu(index).minor}"


def total(mine: Installation, index: int) -> int:
    memory = mine.gpu(index).memory_bytes
    assert memory is not None
    return memory


@ENGINES
@WAYS
@pytest.mark.parametrize("text", [REPLICAS, FAIR], ids=["replicas", "fair"])
def test_a_claim_has_a_quarter_of_the_memory(
    engine: str, way: str, text: str, mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    """The seeds' files: as a pod with `nvidia.com/gpu: 1`, whose claim has no amount."""
    node = start(text)
    made = given(bundle_of("debian", WAIT), node, node.prepare("a", gpu(mine, 2)))
    usable = total(mine, 2) - (256 * MIB if text == FAIR else 0)
    with start_container(made, mine, engine, way) as live:
        assert limit_of(live, mine, 2) == usable // 4 // MIB
        recorded = entry(mine)
    assert recorded["replicas"] == [f"{uuid(mine, 2)}::0"]
    assert recorded["claims"] == [
        {
            "namespace": "default",
            "claim": "a",
            "request": "gpu",
            "device": uuid(mine, 2),
            "share": uid_of("share of a"),
        }
    ]
    (record,) = recorded["memory"]
    assert (record["by"], record["asked"]) == ("driver", False)


@ENGINES
@WAYS
def test_a_requested_amount_is_the_limit(
    engine: str, way: str, mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    node = start(REPLICAS)
    made = given(bundle_of("debian", WAIT), node, node.prepare("a", gpu(mine, 1), memory="6Gi"))
    with start_container(made, mine, engine, way) as live:
        assert limit_of(live, mine, 1) == 6 * 1024
        assert entry(mine)["memory"][0]["asked"]


@WAYS
def test_a_pod_cannot_raise_the_limit_by_its_variables(
    way: str, mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    """CDI's variable replaces that of the pod; the mount is the limit in any case."""
    node = start(REPLICAS)
    claim = node.prepare("a", gpu(mine, 0), memory="2Gi")
    made = given(bundle_of("debian", WAIT, [f"{LIMIT}=60000"]), node, claim)
    with start_container(made, mine, "runc", way) as live:
        assert limit_of(live, mine, 0) == 2 * 1024


def test_claims_of_one_container_have_their_own_limits(
    mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    node = start(REPLICAS)
    claims = [
        node.prepare("a", gpu(mine, 0), memory="2Gi"),
        node.prepare("b", gpu(mine, 3), memory="5Gi"),
    ]
    made = given(bundle_of("debian", WAIT), node, *claims)
    with start_container(made, mine, "runc", "hook") as live:
        assert (limit_of(live, mine, 0), limit_of(live, mine, 3)) == (2048, 5120)
        recorded = entry(mine)
    assert sorted(one["claim"] for one in recorded["claims"]) == ["a", "b"]


def test_shares_of_one_gpu_have_their_own_numbers(
    mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    node = start(REPLICAS)
    for name, number in (("a", 0), ("b", 1)):
        made = given(bundle_of("debian", WAIT), node, node.prepare(name, gpu(mine, 0)))
        with start_container(made, mine, "runc", "hook"):
            assert entry(mine)["replicas"] == [f"{uuid(mine, 0)}::{number}"]


def test_admin_access_has_no_limit(mine: Installation, bundle_of: Bundles, start: Start) -> None:
    node = start(REPLICAS)
    claim = node.prepare("a", gpu(mine, 0), adminAccess=True)
    with start_container(
        given(bundle_of("debian", WAIT), node, claim), mine, "runc", "hook"
    ) as live:
        assert enforced_limits(mine, live.pid) == {}


@pytest.mark.parametrize(("policy", "starts"), [("refuse", False), ("start", True)])
def test_the_parameters_decide_about_a_limit_that_the_driver_refuses(
    policy: str, starts: bool, mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    """The driver promises limits, and refuses this one when the container starts."""
    node = start(REPLICAS)
    claim = node.prepare("a", gpu(mine, 0), of_class=[{**OWN, "memory": {"onFailure": policy}}])
    stub_limits.fail_setting(mine.node, uuid(mine, 0), stub_limits.NO_PERMISSION)
    made = given(bundle_of("debian", ["/bin/echo", "runs"]), node, claim)
    result = run(made, mine.command_with_state("runc"), "runc", "v2")
    assert result.stdout == ("runs\n" if starts else "")


def test_ps_and_inspect_show_claim_and_share(
    mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    node = start(REPLICAS)
    made = given(bundle_of("debian", WAIT), node, node.prepare("a", gpu(mine, 2)))
    with start_container(made, mine, "runc", "hook") as live:
        wide = mine.gpuhook("ps", "-o", "wide").stdout
        shown = json.loads(mine.gpuhook("ps", "-o", "json").stdout)
        facts = json.loads(live.gpuhook("inspect", "-o", "json").stdout)
    share = uid_of("share of a")
    assert "default/a" in wide
    assert share in wide
    (container,) = shown["containers"]
    assert container["replicas"] == [f"{uuid(mine, 2)}::0"]
    assert [one["share"] for one in container["claims"]] == [share]
    assert facts["ledger"]["claims"] == container["claims"]


def test_a_forged_claim_for_another_gpu_is_not_recorded(
    mine: Installation, bundle_of: Bundles, start: Start
) -> None:
    node = start(REPLICAS)
    forged = f"GPUHOOK_CLAIM_X=victim/claim/gpu/{uuid(mine, 5)}/share"
    made = given(bundle_of("debian", WAIT, [forged]), node, node.prepare("a", gpu(mine, 2)))
    with start_container(made, mine, "runc", "hook"):
        assert [one["claim"] for one in entry(mine)["claims"]] == ["a"]
