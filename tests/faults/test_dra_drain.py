# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra status` and `gpuhook dra drain` beside a driver, and after its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gpuhook
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.dra.claims.checkpoint import checkpoint_file
from gpuhook.dra.claims.claim import ClaimName
from tests.cluster_api.cluster_server import Cluster
from tests.kubelet.allocated_claims import allocated, named, result
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import NODE, DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.kubelet.pod_resources import PodResources, claiming_pod
from tests.simulated import time_slices
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER = "gpu.nvidia.com"
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("dra-status.json").read_text("utf-8")
)


@dataclass
class Node:
    """A node with two prepared claims, of GPU 0 and 1, and the kubelet's file."""

    driver: DraProcess
    kubelet: DraKubelet
    cluster: Cluster
    pods: PodResources
    claims: tuple[ClaimName, ...] = ()

    def add(self, *names: str) -> None:
        """Add a claim of GPU 0, 1, ... for each name, and prepare it."""
        for number, name in enumerate(names):
            made = self.cluster.store.add(allocated(named(name), result(f"gpu-{number}")))
            self.claims += (replace(named(name), uid=made["metadata"]["uid"]),)
        found = self.kubelet.prepare(DRIVER, *self.claims)
        assert [one.error for one in found.values()] == [""] * len(names)
        self.keep(*self.claims)

    def keep(self, *claims: ClaimName, outer: str = "Data", inner: str = "Entries") -> None:
        """Write the kubelet's file with these claims, in the format of a version."""
        entries = [
            {
                "ClaimUID": one.uid,
                "ClaimName": one.name,
                "Namespace": one.namespace,
                "PodUIDs": {f"pod-of-{one.name}": {}},
                "DriverState": {DRIVER: {"Devices": []}},
            }
            for one in claims
        ]
        content: Any = {inner: entries}
        if outer:
            content = {outer: json.dumps(content), "Checksum": 1}
        path = self.kubelet.root / "dra_manager_state"
        path.with_suffix(".new").write_text(json.dumps(content), encoding="utf-8")
        path.with_suffix(".new").rename(path)

    def specs(self) -> list[str]:
        """Return the names of the CDI specs of claims."""
        return [name for name in self.driver.specs() if "claim_" in name]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `gpuhook dra`, with the environment of the driver."""
        command = [sys.executable, "-m", "gpuhook", "dra", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.driver.env, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command to its end; return its status and outputs."""
        process = self.start(*words)
        output, errors = process.communicate(timeout=120)
        return process.returncode, output, errors

    def status(self) -> dict[str, Any]:
        """Return the driver in the document of status."""
        code, output, errors = self.run("status", "-o", "json")
        assert code == 0, errors
        document = json.loads(output)
        jsonschema.validate(document, SCHEMA)
        (driver,) = document["drivers"]
        return dict(driver)


@pytest.fixture
def made(run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster) -> Iterator[Node]:
    socket = dra_kubelet.root / "pod-resources/kubelet.sock"
    socket.parent.mkdir()
    with PodResources(socket) as pods:
        driver = run_dra("h100x8", GPUHOOK_POD_RESOURCES_SOCKET=str(socket))
        eventually(cluster.store.slices)
        yield Node(driver, dra_kubelet, cluster, pods)


def test_status_of_a_driver_that_runs_and_after_its_end(made: Node) -> None:
    made.add("a", "b")
    made.pods.pods = [claiming_pod("default", "train-0", "a", DRIVER, "gpu-0")]
    eventually(lambda: made.status()["sockets"][0]["state"]["published"])
    found = made.status()
    (socket,) = found["sockets"]
    assert socket["path"] == str(made.kubelet.plugins / DRIVER / "dra.sock")
    state = socket["state"]
    assert state["registration"] == "registered"
    assert state["server"]["version"] == "v1"
    assert [one["name"] for one in state["pool"]["devices"]].count("gpu-0") == 1
    assert state["slices"] == [{"devices": 8, "counter_sets": 0}]
    claims = {one["name"]: one for one in found["claims"]}
    assert claims["a"]["pods"] == ["default/train-0"]
    assert [one["device"] for one in claims["b"]["devices"]] == ["gpu-1"]
    _, table, _ = made.run("status")
    assert "default/train-0" in table
    assert "registered" not in table
    made.driver.kill()  # its socket remains
    code, table, errors = made.run("status")
    assert code == 0
    assert "default/a" in table
    assert "no process listens" in errors
    assert made.status()["sockets"][0]["state"] is None
    assert len(made.status()["claims"]) == 2


def test_status_of_a_driver_that_the_kubelet_refuses(made: Node) -> None:
    made.kubelet.plugin(DRIVER)
    made.kubelet.refuses = "it is too old"
    made.driver.stop()
    made.driver.start()
    eventually(lambda: "it is too old" in made.run("status")[2])


def test_drain_is_refused_while_pods_run(made: Node) -> None:
    made.add("a", "b")
    made.pods.pods = [claiming_pod("default", "train-0", "a", DRIVER, "gpu-0")]
    made.driver.stop()
    before = made.specs()
    code, _, errors = made.run("drain")
    assert code != 0
    assert "GH2643" in errors
    assert "default/train-0" in errors
    assert made.specs() == before
    code, output, _ = made.run("drain", "--force", "--wait", "0")
    assert "ended claim default/a of gpu.nvidia.com: gpu-0" in output
    assert made.specs() == []


def test_pods_come_from_the_kubelets_file_without_the_api(made: Node) -> None:
    made.add("a")
    made.pods.stop()
    made.driver.stop()
    for outer, inner in (("Data", "Entries"), ("Data", "ClaimInfoStateList"), ("", "entries")):
        made.keep(*made.claims, outer=outer, inner=inner)
        _, _, errors = made.run("drain")
        assert "GH2643" in errors
        assert "the pod with UID pod-of-a" in errors


@pytest.mark.parametrize("is_damaged", [False, True])
def test_drain_answers_the_kubelet_for_a_driver_that_is_gone(made: Node, is_damaged: bool) -> None:
    """No pod remains in Terminating, also if the checkpoint was damaged before."""
    made.add("a", "b")
    made.driver.kill()
    if is_damaged:
        path = made.kubelet.plugins / DRIVER / checkpoint_file.NAME
        path.write_text("damaged", encoding="utf-8")
    draining = made.start("drain", "--wait", "100")
    made.kubelet.wait_for_registrations(2)
    refused = made.kubelet.prepare(DRIVER, named("new"))[named("new").uid].error
    assert "GH2646" in refused
    found = made.kubelet.unprepare(DRIVER, *made.claims)
    assert [one.error for one in found.values()] == ["", ""]
    assert draining.poll() is None
    made.keep()  # as the kubelet after the answers
    output, errors = draining.communicate(timeout=60)
    assert draining.returncode == 0, errors
    assert "ended claim default/b of gpu.nvidia.com: gpu-1" in output
    assert "waiting for the kubelet to end claim default/a, claim default/b" in errors
    assert made.specs() == []
    assert os.listdir(made.kubelet.registry) == []


def test_drain_deletes_the_slices_of_a_stopped_driver_with_permission(made: Node) -> None:
    made.add("a")
    made.keep()
    made.driver.stop()
    assert len(made.cluster.store.slices()) == 1  # for a restart
    made.driver.env["NODE_NAME"] = NODE
    code, output, errors = made.run("drain")
    assert code == 0, errors
    assert "deleted 1 ResourceSlices of gpu.nvidia.com" in output
    assert made.cluster.store.slices() == []


def test_drain_without_the_api_server_ends_the_claims(made: Node) -> None:
    made.add("a")
    made.keep()
    made.driver.stop()
    made.cluster.tokens = set()  # each call is refused
    code, output, errors = made.run("drain")
    assert code == 0, errors
    assert "the kubelet deletes the ResourceSlices" in errors
    assert "ended claim default/a" in output


def test_drain_restores_the_modes_of_gpus(made: Node) -> None:
    slices = time_slices.install(made.driver.node)
    made.driver.stop()
    boot = recovery_evidence.boot_id(made.driver.node.host_root)
    gpu = {"time slice": {"before": "default", "ours": "short"}}
    document = {"format": 1, "boot": boot, "gpus": {made.driver.node.node.gpus[0].uuid: gpu}}
    file = Path(made.driver.env["GPUHOOK_STATE_DIR"]) / saved_policies.CLAIMS_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document), encoding="utf-8")
    slices.put(0, "short")
    code, output, errors = made.run("drain")
    assert code == 0, errors
    assert "is default again" in output
    assert slices.now()[0] == "default"
    assert not file.exists()


def test_drain_beside_a_running_driver_warns_and_waits(made: Node) -> None:
    made.add("a")
    draining = made.start("drain", "--wait", "100")
    eventually(lambda: made.specs() == [])
    assert len(made.kubelet.registrations) == 1  # the driver answers
    made.kubelet.unprepare(DRIVER, *made.claims)
    made.keep()
    _, errors = draining.communicate(timeout=60)
    assert draining.returncode == 0
    assert "gpu.nvidia.com still runs, and prepares new claims: stop it first" in errors


def test_claims_that_the_kubelet_keeps_are_an_error_after_the_wait(made: Node) -> None:
    made.add("a")
    made.driver.stop()
    code, _, errors = made.run("drain", "--wait", "0")
    assert code != 0
    assert "GH2644" in errors
    assert "default/a" in errors


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Data": "{"}', '{"Data": 1}', "\xff"])
def test_unknown_file_of_the_kubelet_is_an_error(made: Node, text: str) -> None:
    made.driver.stop()
    (made.kubelet.root / "dra_manager_state").write_text(text, encoding="latin-1")
    code, _, errors = made.run("drain")
    assert code != 0
    assert "GH2645" in errors
    assert "Traceback" not in errors


def test_node_without_a_driver(tmp_path: Path) -> None:
    for word in ("status", "drain"):
        command = [sys.executable, "-m", "gpuhook", "dra", word, "--kubelet-root", str(tmp_path)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "no DRA driver of gpuhook has run on this node" in found.stderr
        assert found.stdout == ""
