# SPDX-License-Identifier: Apache-2.0
"""The process of the DRA drivers: kills at each step, a slow API server, growth, two drivers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from gpuhook.dra.claims.claim import ClaimName
from tests import depth, growth
from tests.bench.nodes import partitioned
from tests.cluster_api.cluster_server import Cluster, Fault
from tests.faults import vitals
from tests.figures import Figures
from tests.kubelet.allocated_claims import result, stored, uid_of
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER, AMD = "gpu.nvidia.com", "gpu.amd.com"
CHECKPOINT = f"plugins/{DRIVER}/gpuhook-claims.json"
_STEPS = 22  # file operations of a prepare, and more: a call without a kill is a case, too
Claims = list[ClaimName]


@pytest.fixture
def claims(cluster: Cluster) -> Claims:
    """Return three claims, of GPU 0 to 2."""
    return [stored(cluster, f"c{n}", result(f"gpu-{n}")) for n in range(3)]


def succeed(
    kubelet: DraKubelet, call: str, *names: ClaimName, version: str = ""
) -> dict[str, object]:
    """Call, and return the answers; none of them may be an error."""
    found: dict[str, object] = {}
    for uid, answer in getattr(kubelet, call)(DRIVER, *names, version=version).items():
        assert answer.error == ""
        found[uid] = answer
    return found


def spec_names(*names: ClaimName) -> list[str]:
    return sorted(f"gpuhook-{DRIVER}-claim_{one.uid}.yaml" for one in names)


def kill_in_call(driver: DraProcess, kubelet: DraKubelet, call: str, name: ClaimName) -> None:
    """Call with kills armed; without one, kill the driver after the answer."""
    driver.armed.touch()
    try:
        succeed(kubelet, call, name)
    except grpc.RpcError:
        assert driver.ended() == -signal.SIGKILL
    else:
        driver.kill()
    finally:
        driver.armed.unlink()


@pytest.mark.every_case
@pytest.mark.parametrize("step", depth.every(4, range(_STEPS)))
@pytest.mark.parametrize("call", ["prepare", "unprepare"])
def test_a_killed_driver_is_recovered(
    run_dra: RunDra, dra_kubelet: DraKubelet, claims: Claims, call: str, step: int
) -> None:
    kept, name, _ = claims
    driver = run_dra()
    first = succeed(dra_kubelet, "prepare", kept)
    if call == "unprepare":
        succeed(dra_kubelet, "prepare", name)
    driver.kill()
    driver.kill_at = step
    driver.start()
    dra_kubelet.wait_for_registrations(2)
    kill_in_call(driver, dra_kubelet, call, name)
    driver.kill_at = None
    driver.start()
    dra_kubelet.wait_for_registrations(3)
    assert succeed(dra_kubelet, "prepare", kept) == first
    succeed(dra_kubelet, call, name)
    wanted = (kept, name) if call == "prepare" else (kept,)
    assert driver.specs() == spec_names(*wanted)
    left = os.listdir(dra_kubelet.plugins / DRIVER)
    assert not [one for one in left if one.endswith(".tmp")]
    succeed(dra_kubelet, "unprepare", kept, name)
    assert driver.specs() == []


def test_claims_outlive_the_process_and_their_objects(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, claims: Claims
) -> None:
    driver = run_dra()
    succeed(dra_kubelet, "prepare", *claims)
    eventually(cluster.store.slices)
    slices = cluster.store.slices()
    assert driver.stop() == 0
    assert len(driver.specs()) == 3
    assert cluster.store.slices() == slices  # a quick restart changes nothing in the cluster
    cluster.store.remove("resourceclaims")
    driver.start()
    dra_kubelet.wait_for_registrations(2)
    succeed(dra_kubelet, "unprepare", *claims)
    assert driver.specs() == []


def test_the_devices_are_published_and_prepared(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, claims: Claims
) -> None:
    driver = run_dra()
    plugin = dra_kubelet.plugin(DRIVER)
    health = ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    assert plugin.supported == ["v1.DRAPlugin", "v1beta1.DRAPlugin", *health]
    eventually(cluster.store.slices)
    (one,) = cluster.store.slices()
    names = {device["name"] for device in one["spec"]["devices"]}
    assert names == {f"gpu-{n}" for n in range(8)}
    for version in ("v1", "v1beta1"):
        succeed(dra_kubelet, "prepare", *claims, version=version)
    text = driver.metrics()
    counted = f'gpuhook_claims_total{{call="claim_prepare",driver="{DRIVER}",outcome="done"}} 6.0'
    assert counted in text
    assert "gpuhook_claim_prepare_seconds_count" in text


@pytest.mark.parametrize("profile", ["", "h100x8"])
def test_each_vendor_of_the_node_has_a_driver(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, profile: str
) -> None:
    driver = run_dra(profile, has_amd=True)
    dra_kubelet.plugin(AMD)
    eventually(lambda: len(cluster.store.slices()) == 1 + bool(profile))
    one = next(one for one in cluster.store.slices() if one["spec"]["driver"] == AMD)
    names = [device["name"] for device in one["spec"]["devices"]]
    assert len(names) == 8
    both = stored(cluster, "both", result(names[0], "amd", driver=AMD), result("gpu-0", "nvidia"))
    found = dra_kubelet.prepare(AMD, both)[both.uid]
    assert not found.error
    assert [device.device_name for device in found.devices] == [names[0]]
    expected = [f"gpuhook-{AMD}-claim_{both.uid}.yaml"]
    if profile:
        assert not dra_kubelet.prepare(DRIVER, both)[both.uid].error
        expected += spec_names(both)
    assert driver.specs() == sorted(expected)
    assert len(dra_kubelet.registrations) == len(expected)
    spec = yaml.safe_load((driver.cdi / expected[0]).read_bytes())
    nodes = [node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]]
    assert "/dev/kfd" in nodes


def test_a_slow_api_server_delays_its_claim_only(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, claims: Claims
) -> None:
    run_dra()
    dra_kubelet.plugin(DRIVER)
    eventually(cluster.store.slices)
    succeed(dra_kubelet, "prepare", claims[0])
    cluster.faults.append(Fault("get", "resourceclaims", count=1, pause=3))
    found = dra_kubelet.prepare(DRIVER, *claims)
    assert {one.error for one in found.values()} == {""}
    # For each call: the thread that writes statuses reads the claim, too.
    refusal = Fault("get", "resourceclaims", name=claims[1].name, count=1000, status=500)
    cluster.faults.append(refusal)
    succeed(dra_kubelet, "unprepare", *claims)
    found = dra_kubelet.prepare(DRIVER, *claims)
    assert [bool(found[one.uid].error) for one in claims] == [False, True, False]
    cluster.faults.remove(refusal)
    succeed(dra_kubelet, "prepare", *claims)


def test_a_driver_of_gpus_that_hangs_does_not_keep_claims_from_ending(
    run_dra: RunDra, dra_kubelet: DraKubelet, claims: Claims
) -> None:
    driver = run_dra()
    succeed(dra_kubelet, "prepare", *claims)
    driver.kill()
    driver.env["HANGS"] = "1"
    driver.start()
    dra_kubelet.wait_for_registrations(2)
    succeed(dra_kubelet, "prepare", claims[0])
    succeed(dra_kubelet, "unprepare", *claims)
    assert driver.specs() == []
    assert driver.stop() == 0


def test_a_driver_without_an_api_server_ends_with_a_sentence(
    run_dra: RunDra, dra_kubelet: DraKubelet
) -> None:
    driver = run_dra(GPUHOOK_SERVICE_ACCOUNT="/nowhere")
    assert driver.ended() == 2
    text = (driver.place / "log").read_text(encoding="utf-8")
    assert "GH2609" in text
    assert "/nowhere has no token" in text


def test_signals_reload_and_end(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, claims: Claims
) -> None:
    driver = run_dra()
    eventually(cluster.store.slices)
    driver.configure("version: v1\ngpuhook:\n  excludeDevices: ['7']\n")
    driver.signal(signal.SIGHUP)

    def devices() -> int:
        return sum(len(one["spec"].get("devices", ())) for one in cluster.store.slices())

    eventually(lambda: devices() == 7, "seven devices")
    driver.configure("version: v1\nno-such-key: 1\nflags: [broken\n")
    driver.wait_for_log(code="GH1800")
    succeed(dra_kubelet, "prepare", *claims)
    assert devices() == 7
    assert driver.stop(signal.SIGINT) == 0


def test_two_drivers_of_a_rolling_update(
    run_dra: RunDra, dra_kubelet: DraKubelet, claims: Claims, tmp_path: Path
) -> None:
    directory = str(tmp_path / "cdi")
    old = run_dra(POD_UID="uid-1", GPUHOOK_CDI_DIRECTORY=directory)
    first = succeed(dra_kubelet, "prepare", claims[0])
    run_dra(POD_UID="uid-2", GPUHOOK_CDI_DIRECTORY=directory)
    dra_kubelet.wait_for_registrations(2)
    assert dra_kubelet.plugin(DRIVER).endpoint.endswith("dra-uid-2.sock")
    assert succeed(dra_kubelet, "prepare", *claims)[claims[0].uid] == first[claims[0].uid]
    assert old.stop() == 0
    succeed(dra_kubelet, "unprepare", *claims)
    assert os.listdir(directory) == ["k8s.device-plugin.nvidia.com-gpu.json"]  # of the node


@pytest.mark.soak
def test_thousands_of_claims_leave_nothing(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, figures: Figures
) -> None:
    """The process and its files do not grow over claims that come and go."""
    driver, rounds = run_dra(), depth.depth(30, 333, 3334)

    def cycle(count: int) -> None:
        for _ in range(count):
            claims = [stored(cluster, f"c{n}", result(f"gpu-{n}")) for n in range(3)]
            succeed(dra_kubelet, "prepare", *claims)
            succeed(dra_kubelet, "unprepare", *claims)
            cluster.store.remove("resourceclaims")

    dra_kubelet.plugin(DRIVER)
    cycle(20)
    before, lines = vitals.read(driver.pid), len(driver.log())
    files = growth.Directory(driver.state, driver.cdi, dra_kubelet.root).files
    cycle(rounds)
    eventually(lambda: vitals.read(driver.pid).fds <= before.fds + 3, "no more descriptors")
    eventually(lambda: vitals.read(driver.pid).threads <= before.threads + 2, "no more threads")
    after, most = vitals.read(driver.pid), before.mib + 4
    figures.record("claims prepared and unprepared", str(rounds * 3))
    figures.record("descriptors", f"{before.fds} to {after.fds}", str(before.fds + 3))
    figures.record("threads", f"{before.threads} to {after.threads}", str(before.threads + 2))
    figures.record("MiB of resident memory", f"{before.mib} to {after.mib}", str(most))
    now = growth.Directory(driver.state, driver.cdi, dra_kubelet.root).files
    figures.record("files of the driver", f"{files} to {now}", str(files))
    added = (len(driver.log()) - lines) / rounds / 3
    figures.record("lines of the log for each claim", f"{added:.1f}", "3")
    assert after.mib <= most
    assert now <= files
    assert added <= 3
    assert driver.specs() == []


@pytest.mark.thorough
@pytest.mark.soak
def test_claims_of_a_node_of_instances(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, figures: Figures
) -> None:
    """112 MIG instances are published, and 500 claims of their shares have little of memory."""
    replicas = "[{name: nvidia.com/mig-1g.5gb, replicas: 8}]"
    text = f"flags: {{migStrategy: mixed}}\nsharing: {{timeSlicing: {{resources: {replicas}}}}}\n"
    driver = run_dra(partitioned(), f"version: v1\n{text}")
    dra_kubelet.plugin(DRIVER)
    eventually(lambda: sum(len(one["spec"]["devices"]) for one in cluster.store.slices()) == 112)
    assert max(len(one["spec"]["devices"]) for one in cluster.store.slices()) <= 128
    devices = [one["name"] for found in cluster.store.slices() for one in found["spec"]["devices"]]
    share: dict[str, Any] = {"consumedCapacity": {"slots": "1"}}
    claims = [
        stored(cluster, f"c{n}", result(devices[n % 112], shareID=uid_of(f"c{n}"), **share))
        for n in range(500)
    ]
    before = vitals.read(driver.pid)
    for first in range(0, 500, 100):
        succeed(dra_kubelet, "prepare", *claims[first : first + 100])
    after, size = vitals.read(driver.pid), (dra_kubelet.root / CHECKPOINT).stat().st_size
    succeed(dra_kubelet, "unprepare", *claims)
    assert driver.specs() == []
    limits = {"MiB of resident memory": (after.mib, before.mib + 24), "bytes": (size, 2_000_000)}
    for what, (value, most) in limits.items():
        figures.record(f"{what} with 500 claims", str(value), str(most))
        assert value <= most, what
