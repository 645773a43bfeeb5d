# SPDX-License-Identifier: Apache-2.0
"""Attach sets the memory limit of a GPU before the GPU is usable; detach removes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.apply.spec import oci_spec
from gpuhook.request.memory_request import MIB
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation
from tests.contract.limiting import LIMIT, enforced_limits, entry, grant, uuid
from tests.contract.live import Live, sleeping, started
from tests.contract.runtimes import ENGINES
from tests.simulated import stub_limits


def records(live: Live) -> dict[str, tuple[int, str]]:
    """Return the ledger's limits by GPU: MiB, and what enforces them."""
    limits = entry(live.installation).get("memory", [])
    return {one["device"]: (one["hard"] // MIB, one["by"]) for one in limits}


def limited(made: Bundle, mebibytes: int) -> Bundle:
    """Set a container's memory limit by its own variable, as outside of Kubernetes."""
    config = made.config()
    oci_spec.set_variable(config, f"{LIMIT}={mebibytes}")
    made.write(config)
    return made


@ENGINES
def test_attach_sets_the_granted_limit_and_detach_clears_it(
    engine: str, mine: Installation, tmp_path: Path
) -> None:
    """The plugin's grant applies, lowered by the container's variable; --dry-run prints it."""
    first, second = uuid(mine, 2), uuid(mine, 3)
    made = limited(grant(mine, sleeping(tmp_path), 2, 4096, 1024), 3000)
    with started(made, mine, engine, "v2") as live:
        words = ["--device", first, "--device", second]
        planned = live.report("attach", *words, "--dry-run")
        assert enforced_limits(mine, live.pid) == {}
        done = live.report("attach", *words)
        assert done["steps"] == planned["steps"]
        assert (
            f"memory limit of {first}: 3000Mi (1Gi of it guaranteed), was no limit"
            in (done["steps"][0])
        )
        assert enforced_limits(mine, live.pid) == {first: (3000, 1024), second: (3000, 0)}
        assert records(live) == {first: (3000, "driver"), second: (3000, "driver")}
        assert live.attach(first, second)["steps"] == []
        assert live.report("repair")["steps"] == []
        detached = live.detach(first)
        assert detached["steps"][-1].startswith(f"memory limit of {first}: no limit, was 3000Mi")
        assert enforced_limits(mine, live.pid) == {second: (3000, 0)}
        assert records(live) == {second: (3000, "driver")}
        live.attach(first)
        assert enforced_limits(mine, live.pid)[first] == (3000, 1024)
        live.detach(first, second)
        assert (enforced_limits(mine, live.pid), records(live)) == ({}, {})


def test_limit_options_replace_the_limit(mine: Installation, tmp_path: Path) -> None:
    """The options of a replica's attach replace its limit; invalid ones are refused."""
    gpu = uuid(mine, 2)
    with started(sleeping(tmp_path), mine, "runc", "v2") as live:
        words = ["--device", f"{gpu}::1", "--memory-limit", "4Gi", "--memory-request", "1Gi"]
        live.report("attach", *words)
        assert enforced_limits(mine, live.pid) == {gpu: (4096, 1024)}
        (one,) = [one for one in mine.holders() if one["id"] == live.id]
        assert (one["replicas"], one["memory"][0]["by"]) == ([f"{gpu}::1"], "driver")
        assert live.report("attach", *words)["steps"] == []
        (step,) = live.report("attach", "--device", f"{gpu}::1", "--memory-limit", "2Gi")["steps"]
        assert step == f"memory limit of {gpu}: 2Gi, was 4Gi (1Gi of it guaranteed)"
        assert live.attach(f"{gpu}::1")["steps"] == []
        assert enforced_limits(mine, live.pid) == {gpu: (2048, 0)}
        live.detach(f"{gpu}::1")
        assert enforced_limits(mine, live.pid) == {}
        too_much = ["--device", gpu, "--memory-limit", "900Gi"]
        live.refused("GH1782", "attach", *too_much)
        for wrong in (["--memory-request", "1Gi"], ["--memory-limit", "4096"]):
            assert live.gpuhook("attach", "--device", gpu, *wrong).rc == 2


@pytest.mark.parametrize("policy", ["auto", "refuse", "start"])
def test_on_failure_policy_of_an_attach(policy: str, mine: Installation, tmp_path: Path) -> None:
    """limits.onFailure either undoes the attach or starts with a note about the missing limit."""
    mine.settings["limits"] = {"onFailure": policy}
    mine.configure()
    gpu = uuid(mine, 2)
    stub_limits.fail_setting(mine.node, gpu, stub_limits.NOT_SUPPORTED)
    with started(limited(sleeping(tmp_path), 3000), mine, "runc", "v2") as live:
        before = live.seen()
        if policy != "start":
            live.refused("GH1251", "attach", "--device", gpu)
            assert live.seen().nodes == before.nodes
            assert live.seen().rules == before.rules
            assert list(mine.entries()) == []
        done = live.report("attach", "--device", "3")  # another one, which the driver takes
        assert enforced_limits(mine, live.pid) == {uuid(mine, 3): (3000, 0)}
        if policy == "start":
            done = live.attach(gpu)
            (note,) = [note for note in done["notes"] if "onFailure" in note]
            assert "GH1251" in note
            assert records(live)[gpu] == (3000, "")
            stub_limits.repair(mine.node, gpu)
            live.report("repair")
            assert enforced_limits(mine, live.pid)[gpu] == (3000, 0)
            assert records(live)[gpu] == (3000, "driver")


def test_unenforceable_grant_of_the_node_is_a_note(mine: Installation, tmp_path: Path) -> None:
    """The container itself requests no limit: attach succeeds, and the guard monitors the usage."""
    gpu = uuid(mine, 2)
    stub_limits.fail_setting(mine.node, gpu, stub_limits.NOT_SUPPORTED)
    made = grant(mine, sleeping(tmp_path), 2, 4096, 4096)
    with started(made, mine, "runc", "v2") as live:
        assert any("onFailure" in note for note in live.attach(gpu)["notes"])
        assert records(live) == {gpu: (4096, "")}
        live.detach(gpu)
        assert records(live) == {}


def test_detach_succeeds_if_the_limit_cannot_be_cleared(mine: Installation, tmp_path: Path) -> None:
    """The ledger records the limit as uncertain, and a repair clears it."""
    gpu = uuid(mine, 2)
    with started(limited(sleeping(tmp_path), 3000), mine, "runc", "v2") as live:
        live.attach(gpu)
        stub_limits.fail_setting(mine.node, gpu, stub_limits.NOT_SUPPORTED)
        (note,) = [note for note in live.detach(gpu)["notes"] if "memory limit" in note]
        assert "may still enforce" in note
        assert mine.device(2) not in live.seen().nodes
        ((_, by),) = records(live).values()
        assert by == ""
        stub_limits.repair(mine.node, gpu)
        live.report("repair")
        assert (enforced_limits(mine, live.pid), records(live)) == ({}, {})


def test_attach_with_a_limit_on_cgroup_v1_is_refused(mine: Installation, tmp_path: Path) -> None:
    """The driver limits cgroups of version 2 only."""
    with started(limited(sleeping(tmp_path), 3000), mine) as live:
        done = live.gpuhook("attach", "--device", "2")
        if done.rc == 0:
            pytest.skip("this machine's own cgroups are v2")
        assert "Error GH1312:" in done.stderr
