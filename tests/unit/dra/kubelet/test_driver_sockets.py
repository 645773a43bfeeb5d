# SPDX-License-Identifier: Apache-2.0
"""A driver's sockets: the order, the kubelet's restarts, removed and stale sockets, two drivers."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from gpuhook.device_plugin.api.services import SOCKET_PATH_LIMIT
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.dra.api import dra_pb2 as api
from gpuhook.dra.api import dra_services
from gpuhook.dra.api import pluginregistration_pb2 as registration
from gpuhook.dra.claims.claim_calls import ClaimCalls
from gpuhook.dra.kubelet.driver_services import ClaimService, RegistrationService
from gpuhook.dra.kubelet.driver_sockets import DriverSockets
from gpuhook.dra.kubelet.socket_paths import socket_paths
from tests.kubelet.allocated_claims import allocated, named, result
from tests.kubelet.dra_kubelet import DraKubelet, call, connect, mode_of
from tests.kubelet.plugin import LoopThread
from tests.refusal import refused
from tests.unit.dra.claims.claims_world import DRIVER, World
from tests.waiting import eventually

A, B = named("a"), named("b")


class Served:
    """A driver with real sockets below a kubelet's directory, in its own event loop."""

    def __init__(self, root: Path, place: Path, pod_uid: str = "") -> None:
        self.world = World(place)
        self.counters = Counters()
        self.paths = socket_paths(
            str(root / "plugins"), str(root / "plugins_registry"), DRIVER, pod_uid
        )
        versions = map(dra_services.supported, dra_services.VERSIONS)
        self.sockets = None
        self.thread = LoopThread()

        async def start() -> DriverSockets:
            sockets = DriverSockets(
                self.paths,
                ClaimService(DRIVER, ClaimCalls(self.world.preparation), self.counters),
                RegistrationService(DRIVER, self.paths.service, versions, self.counters),
            )
            await sockets.start()
            return sockets

        self._sockets = self.thread.run(start())

    def stop(self) -> None:
        self.thread.run(self._sockets.end())
        self.thread.close()


@pytest.fixture
def kubelet(short_path: Path) -> Iterator[DraKubelet]:
    with DraKubelet(short_path) as running:
        yield running


@pytest.fixture
def driver(short_path: Path, tmp_path: Path, kubelet: DraKubelet) -> Iterator[Served]:
    made = Served(short_path, tmp_path)
    for number, name in enumerate((A, B)):
        made.world.server.add(allocated(name, result(f"gpu-{number}")))
    yield made
    made.stop()


def test_the_driver_registers_with_both_versions(driver: Served, kubelet: DraKubelet) -> None:
    plugin = kubelet.plugin(DRIVER)
    assert plugin.supported == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert plugin.endpoint == str(kubelet.plugins / DRIVER / "dra.sock")
    assert plugin.registry_socket == kubelet.registry / f"{DRIVER}-reg.sock"
    for path in (plugin.endpoint, plugin.registry_socket):
        assert mode_of(path) == 0o600


@pytest.mark.parametrize("version", dra_services.VERSIONS)
def test_claims_are_served_in_each_version(
    driver: Served, kubelet: DraKubelet, version: str
) -> None:
    found = kubelet.prepare(DRIVER, A, version=version)
    assert found == kubelet.prepare(DRIVER, A, version=version)
    (device,) = found[A.uid].devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("node1", "gpu-0")
    assert device.cdi_device_ids == [f"k8s.{DRIVER}/claim={A.uid}-gpu"]
    assert not device.HasField("share_id")
    assert kubelet.unprepare(DRIVER, A, version=version)[A.uid].error == ""


def test_a_share_has_its_id_in_the_answer(driver: Served, kubelet: DraKubelet) -> None:
    driver.world.server.add(allocated(A, result("gpu-0", shareID="share-1")))
    (device,) = kubelet.prepare(DRIVER, A)[A.uid].devices
    assert device.share_id == "share-1"


def test_an_error_of_one_claim_is_one_line_for_the_pods_event(
    driver: Served, kubelet: DraKubelet
) -> None:
    found = kubelet.prepare(DRIVER, A, named("missing"))
    error = found[named("missing").uid].error
    assert error.startswith("GH2600: the claim default/missing")
    assert "\n" not in error
    assert found[A.uid].error == ""
    text = driver.counters.snapshot().counters["claims"]
    assert text == {
        (DRIVER, "claim_prepare", "done"): 1,
        (DRIVER, "claim_prepare", "failed"): 1,
    }


def test_large_and_hostile_names_do_not_end_the_driver(driver: Served, kubelet: DraKubelet) -> None:
    hostile = [
        api.Claim(namespace="n" * (4 << 20), name="x", uid=A.uid),
        api.Claim(namespace="\u202e\n", name="../..", uid="../../../../etc"),
        api.Claim(),
    ]
    method = dra_services.prepare("v1")
    channel = kubelet.plugin(DRIVER).channel
    found = call(channel, method, api.NodePrepareResourcesRequest(claims=hostile))
    assert found.claims.keys() == {one.uid for one in hostile}
    assert all(
        0 < len(one.error) < 4096 and one.error.isprintable() for one in found.claims.values()
    )
    as_they_are: Callable[[bytes], bytes] = bytes
    raw = channel.unary_unary(method.path, as_they_are, as_they_are)
    with pytest.raises(grpc.RpcError) as caught:
        raw(b"\xff\xff", timeout=45)
    assert "GH1820" in str(caught.value)
    assert kubelet.prepare(DRIVER, B)[B.uid].error == ""


def test_a_refused_registration_does_not_end_the_driver(
    driver: Served, kubelet: DraKubelet, capfd: pytest.CaptureFixture[str]
) -> None:
    kubelet.plugin(DRIVER)
    kubelet.refuses = "another plugin has this name"
    kubelet.restart()
    kubelet.changes.wait_for(lambda: kubelet.refusals)
    eventually(lambda: (DRIVER, "failed") in driver.counters.snapshot().counters["registrations"])
    kubelet.refuses = ""
    kubelet.restart()
    assert kubelet.prepare(DRIVER, A)[A.uid].error == ""


def test_a_restarted_kubelet_finds_the_driver_again(driver: Served, kubelet: DraKubelet) -> None:
    kubelet.prepare(DRIVER, A)
    kubelet.restart()
    assert kubelet.prepare(DRIVER, A)[A.uid].error == ""
    assert len(kubelet.registrations) == 2


@pytest.mark.parametrize("removed", ["registration", "service", "both", "directory"])
def test_removed_sockets_are_served_again(
    driver: Served, kubelet: DraKubelet, removed: str
) -> None:
    first = kubelet.plugin(DRIVER)
    if removed != "registration":
        os.unlink(driver.paths.service)
    if removed == "directory":
        shutil.rmtree(driver.paths.directory, ignore_errors=True)
    if removed != "service":
        with suppress(FileNotFoundError):  # the driver may have removed it to serve it again
            os.unlink(driver.paths.registration)
    kubelet.wait_for_registrations(2)
    assert kubelet.plugin(DRIVER) is not first
    assert kubelet.prepare(DRIVER, A)[A.uid].error == ""


def test_the_registration_goes_first_and_comes_last(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet dials the endpoint at once."""
    seen: list[tuple[str, bool]] = []
    real_rename, real_unlink = os.rename, os.unlink
    service = str(short_path / "plugins" / DRIVER / "dra.sock")

    def rename(source: str, target: str) -> None:
        real_rename(source, target)
        if str(target).endswith("reg.sock"):
            seen.append(("made", os.path.exists(service)))

    def unlink(path: str, **named: object) -> None:
        if str(path).endswith("reg.sock"):
            seen.append(("removed", os.path.exists(service)))
        real_unlink(path, **named)  # type: ignore[arg-type]

    (short_path / "plugins_registry").mkdir()
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "unlink", unlink)
    made = Served(short_path, tmp_path)
    made.stop()
    assert seen == [("made", True), ("removed", True)]
    assert not os.path.exists(service)


def test_a_kubelet_that_comes_later_gets_the_driver(short_path: Path, tmp_path: Path) -> None:
    made = Served(short_path, tmp_path)  # there is no plugins_registry
    made.world.server.add(allocated(A, result("gpu-0")))
    with DraKubelet(short_path) as kubelet:
        assert kubelet.prepare(DRIVER, A)[A.uid].error == ""
    made.stop()


def test_dead_sockets_of_former_drivers_are_removed(
    short_path: Path, tmp_path: Path, kubelet: DraKubelet
) -> None:
    dead = [
        kubelet.registry / f"{DRIVER}-reg.sock",
        kubelet.registry / f"{DRIVER}-old-reg.sock",
        kubelet.plugins / DRIVER / "dra-old.sock",
    ]
    others = [
        kubelet.registry / "gpu.example.com-reg.sock",
        kubelet.registry / f"{DRIVER}x-reg.sock",
    ]
    for path in (*dead, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    made = Served(short_path, tmp_path, "uid-2")
    kubelet.plugin(DRIVER)
    assert not [path for path in dead if path.exists()]
    assert all(path.exists() for path in others)
    made.stop()


def test_two_drivers_of_a_rolling_update(
    short_path: Path, tmp_path: Path, kubelet: DraKubelet
) -> None:
    old = Served(short_path, tmp_path, "uid-1")
    old.world.server.add(allocated(A, result("gpu-0")))
    first = kubelet.prepare(DRIVER, A)
    new = Served(short_path, tmp_path, "uid-2")
    kubelet.wait_for_registrations(2)
    assert kubelet.plugin(DRIVER).endpoint.endswith("dra-uid-2.sock")
    assert kubelet.prepare(DRIVER, A) == first  # the new one has no such claim in its API server
    old.stop()
    assert kubelet.unprepare(DRIVER, A)[A.uid].error == ""
    assert os.path.exists(new.paths.service)
    new.stop()
    assert list(kubelet.registry.iterdir()) == []


def test_a_driver_without_a_pod_uid_leaves_its_socket_to_a_newer_one(
    short_path: Path, tmp_path: Path, kubelet: DraKubelet
) -> None:
    old = Served(short_path, tmp_path)
    kubelet.plugin(DRIVER)
    new = Served(short_path, tmp_path)
    kubelet.wait_for_registrations(2)
    inode = os.lstat(new.paths.registration).st_ino
    old.stop()
    assert os.lstat(new.paths.registration).st_ino == inode
    with connect(new.paths.registration) as channel:
        info = call(channel, dra_services.GET_INFO, registration.InfoRequest())
    assert info.name == DRIVER
    new.stop()


def test_long_paths_have_a_digest(short_path: Path) -> None:
    uid = "0b2e7bfa-0f1c-4c7c-8f0e-6f5a1d8f6c11"
    plugins, registry = short_path / ("p" * 30), short_path / ("r" * 30)
    found = socket_paths(str(plugins), str(registry), DRIVER, uid)
    other = socket_paths(str(plugins), str(registry), DRIVER, uid[::-1])
    assert max(len(found.service), len(found.registration)) <= SOCKET_PATH_LIMIT
    assert found.service != other.service
    assert found.registration != other.registration
    assert found.registration.endswith("-reg.sock")
    with refused("GH1822"):
        socket_paths("/" + "x" * 90, str(registry), DRIVER)
