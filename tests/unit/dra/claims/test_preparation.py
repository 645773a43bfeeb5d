# SPDX-License-Identifier: Apache-2.0
"""Claims are prepared once, in parallel, never two for one exclusive device, and undone whole."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from gpuhook.cdi import spec_file
from gpuhook.dra.claims import claim_edits
from gpuhook.dra.claims.claim import ClaimName
from gpuhook.dra.claims.prepared_claim import PreparedDevice
from gpuhook.dra.claims.settings.device_share import DeviceShare
from gpuhook.errors import GpuhookError, fault
from tests.kubelet.allocated_claims import allocated, named, result
from tests.refusal import refused
from tests.unit.dra.claims.claims_world import DRIVER, NODE, World, gpu, in_threads

A, B = named("a"), named("b")
NUMBER = "8F3E3021"  # of the device of A


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def cdi(name: ClaimName, request: str = "gpu") -> str:
    return f"k8s.{DRIVER}/claim={name.uid}-{request}"


def test_a_claim_gets_its_device_and_one_spec(world: World) -> None:
    world.server.add(allocated(A, result("gpu-2")))
    answer = world.prepare(A)
    assert answer == (PreparedDevice("gpu", NODE, "gpu-2", (cdi(A),)),)
    assert world.spec(A) == {
        "cdiVersion": "0.5.0",
        "kind": f"k8s.{DRIVER}/claim",
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
        "devices": [
            {
                "name": f"{A.uid}-gpu",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/nvidia2"}],
                    "env": [f"GPUHOOK_CLAIM_{NUMBER}=default/a/gpu/GPU-2/"],
                },
            }
        ],
    }
    read = spec_file.read(world.specs.path(A.uid))  # as the wrapper and every YAML reader do
    assert read == world.spec(A) == yaml.safe_load(Path(world.specs.path(A.uid)).read_bytes())


def test_a_repeated_call_has_the_same_answer_and_needs_no_api_server(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    first = world.prepare(A)
    world.server.claims.clear()
    world.state = None  # type: ignore[assignment]  # the driver is not asked
    assert world.prepare(A) == first


def test_a_repeated_call_writes_a_lost_spec_again(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    world.prepare(A)
    spec = world.spec(A)
    Path(world.specs.path(A.uid)).unlink()
    world.prepare(A)
    assert world.spec(A) == spec


def test_the_devices_of_a_request_have_one_cdi_device(world: World) -> None:
    """A variable of one of two ids of a container would replace that of the other."""
    world.server.add(allocated(A, result("gpu-1"), result("gpu-5"), result("gpu-3", "other")))
    answer = world.prepare(A)
    assert [one.cdi_names for one in answer] == [(cdi(A),), (cdi(A),), (cdi(A, "other"),)]
    nodes = {
        one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]]
        for one in world.spec(A)["devices"]
    }
    assert nodes == {
        f"{A.uid}-gpu": ["/dev/nvidia1", "/dev/nvidia5"],
        f"{A.uid}-other": ["/dev/nvidia3"],
    }


def test_variables_with_several_values_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edits(shares: list[DeviceShare], *_: object) -> dict[str, list[str]]:
        return {"env": [f"ONE={shares[0].request}", "SAME=1"]}

    monkeypatch.setattr(claim_edits, "edits", edits)
    world.server.add(allocated(A, result("gpu-1"), result("gpu-2", "other")))
    world.prepare(A)
    assert [one["containerEdits"]["env"] for one in world.spec(A)["devices"]] == [["SAME=1"]] * 2


def test_subrequests_have_the_name_of_their_request(world: World) -> None:
    world.server.add(allocated(A, result("gpu-1", "gpu/small")))
    assert world.prepare(A)[0].request == "gpu"


def test_a_share_is_named_in_the_answer(world: World) -> None:
    share = "0b2e7bfa-0f1c-4c7c-8f0e-6f5a1d8f6c11"
    consumed = {"memory": "10Gi", f"{DRIVER}/slots": "1", "other": "1500m"}
    world.server.add(allocated(A, result("gpu-1", shareID=share, consumedCapacity=consumed)))
    assert world.prepare(A)[0].share_id == share
    (known,) = world.checkpoint.claims().values()
    assert known.claim.devices[0].consumed == {"memory": 10 << 30, "slots": 1, "other": 2}


def test_an_exclusive_device_has_one_claim(world: World) -> None:
    world.server.add(allocated(A, result("gpu-1")))
    world.server.add(allocated(B, result("gpu-0"), result("gpu-1")))
    world.prepare(A)
    with refused("GH2606", "gpu-1", "default/a", "default/b"):
        world.prepare(B)
    assert world.prepared() == ["a"]
    assert not world.specs.has(B.uid)
    world.unprepare(A)
    assert len(world.prepare(B)) == 2


def test_simultaneous_claims_of_one_device_have_one_winner(world: World) -> None:
    names = [named(f"c{number}") for number in range(16)]
    for name in names:
        world.server.add(allocated(name, result("gpu-1")))
    found = in_threads(*(partial(world.prepare, name) for name in names))
    winners = [one for one in found if not isinstance(one, Exception)]
    assert len(winners) == 1
    assert {one.code for one in found if isinstance(one, GpuhookError)} == {"GH2606"}
    assert len(world.prepared()) == 1
    assert len(list(world.specs.uids())) == 1


def test_shares_of_one_device_are_for_several_claims(world: World) -> None:
    world.server.add(allocated(A, result("gpu-1", shareID="1")))
    world.server.add(allocated(B, result("gpu-1", shareID="2")))
    world.server.add(allocated(named("c"), result("gpu-1")))
    world.prepare(A)
    world.prepare(B)
    with refused("GH2606"):  # the device was not shared when this claim was allocated
        world.prepare(named("c"))


def test_replicas_of_one_gpu_are_for_several_claims(world: World) -> None:
    one, other = (
        gpu(0, name=f"gpu-0-s{number}", replica=number, replicas=2) for number in range(2)
    )
    world.use(one, other, gpu(0))
    world.server.add(allocated(A, result("gpu-0-s0")))
    world.server.add(allocated(B, result("gpu-0-s1")))
    world.server.add(allocated(named("c"), result("gpu-0")))
    world.prepare(A)
    world.prepare(B)
    with refused("GH2606", "gpu-0"):
        world.prepare(named("c"))


def test_an_instance_and_its_gpu_are_not_for_two_claims(world: World) -> None:
    from dataclasses import replace

    whole = gpu(0)
    device = replace(whole.device, uuid="MIG-1", gpu="GPU-0", instance=(1, 0))
    world.use(whole, replace(whole, name="gpu-0-mig-1g-0-0", device=device))
    world.server.add(allocated(A, result("gpu-0-mig-1g-0-0")))
    world.server.add(allocated(B, result("gpu-0")))
    world.prepare(A)
    with refused("GH2606", "default/a"):
        world.prepare(B)


def test_an_admin_observes_a_device_that_a_claim_has(world: World) -> None:
    world.server.add(allocated(A, result("gpu-1")))
    world.server.add(allocated(B, result("gpu-1", adminAccess=True)))
    world.prepare(A)
    assert world.prepare(B)[0].device == "gpu-1"
    world.unprepare(A)
    world.server.add(allocated(named("c"), result("gpu-1")))
    world.prepare(named("c"))


def test_results_of_other_drivers_and_nodes_are_not_ours(world: World) -> None:
    foreign = [result("nic-0", driver="dra.net"), result("gpu-1", pool="node2")]
    world.server.add(allocated(A, *foreign, result("gpu-3", "mine")))
    assert [one.device for one in world.prepare(A)] == ["gpu-3"]
    world.server.add(allocated(B, *foreign))
    with refused("GH2602", "default/b", DRIVER, NODE):
        world.prepare(B)


BAD: dict[str, tuple[str, Callable[[World], object]]] = {
    "missing": ("GH2600", lambda world: world.server.claims.clear()),
    "created again": (
        "GH2601",
        lambda world: world.server.claims["a"]["metadata"].update(uid="other"),
    ),
    "not allocated": ("GH2602", lambda world: world.server.claims["a"].pop("status")),
    "unknown device": ("GH2605", lambda world: world.use(gpu(1))),
    "status is a list": ("GH2603", lambda world: world.server.claims["a"].update(status=[1])),
}


@pytest.mark.parametrize("case", BAD)
def test_a_claim_that_cannot_be_prepared_leaves_nothing(world: World, case: str) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    code, change = BAD[case]
    change(world)
    with refused(code, "default/a"):
        world.prepare(A)
    assert world.prepared() == []
    assert list(world.specs.uids()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", 5),
        ("device", ""),
        ("request", "/sub"),
        ("shareID", ["x"]),
        ("adminAccess", "yes"),
        ("consumedCapacity", {"memory": "ten"}),
        ("consumedCapacity", {"memory": "-1Gi"}),
        ("consumedCapacity", {"memory": True}),
        ("consumedCapacity", "10Gi"),
    ],
)
def test_an_invalid_field_of_the_allocation_is_named(world: World, key: str, value: object) -> None:
    world.server.add(allocated(A, {**result("gpu-0"), key: value}))
    with refused("GH2603", "status.allocation.devices.results[0]"):
        world.prepare(A)


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a b", "x" * 65, "a\n", "é" * 8])
def test_a_uid_that_is_none_touches_no_file(world: World, uid: str) -> None:
    before = world.files()
    for call in (world.prepare, world.unprepare):
        with refused("GH2600"):
            call(ClaimName("default", "a", uid))
    assert world.files() == before


def test_hostile_names_are_parts_of_the_path_only(world: World) -> None:
    with refused("GH2600"):
        world.prepare(ClaimName("../../x?y", "a/b\r\nHost: x", A.uid))
    assert all("\r" not in path and path.count("/") == 7 for path in world.server.paths)


def test_unknown_claims_are_ended_at_once(world: World) -> None:
    world.unprepare(A)
    assert world.prepared() == []


def test_the_end_of_a_claim_needs_no_api_server_and_no_driver(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    world.prepare(A)
    world.server.claims.clear()
    world.state = None  # type: ignore[assignment]
    world.restart()
    world.unprepare(A)
    assert world.files() == ["gpuhook-claims.json", "gpuhook-claims.json.previous"]
    assert world.prepared() == []


def test_an_older_api_server_has_the_claim_in_its_version(world: World) -> None:
    world.server.versions = ("v1beta1",)
    for name in (A, B):
        world.server.add(allocated(name, result("gpu-0" if name == A else "gpu-1")))
        world.prepare(name)
    versions = [path.split("/")[3] for path in world.server.paths]
    assert versions == ["v1", "v1beta2", "v1beta1", "v1beta1"]


def test_a_blocked_claim_does_not_block_another(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    world.server.add(allocated(B, result("gpu-1")))
    waits, released = threading.Event(), threading.Event()

    def block(path: str) -> None:
        if path.endswith("/a"):
            waits.set()
            released.wait(60)

    world.server.before = block
    thread = threading.Thread(target=world.prepare, args=(A,))
    thread.start()
    waits.wait(60)
    world.prepare(B)
    world.unprepare(B)
    released.set()
    thread.join()
    assert world.prepared() == ["a"]


def test_a_driver_update_renews_the_specs(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    world.prepare(A)
    old = Path(world.specs.path(A.uid)).stat().st_ino
    world.preparation.refresh(world.state)
    assert Path(world.specs.path(A.uid)).stat().st_ino == old
    world.use(gpu(0, uuid="GPU-0"), token="driver-2")
    world.state.spec["containerEdits"] = {"env": ["DRIVER=2"]}
    world.preparation.refresh(world.state)
    assert world.spec(A)["containerEdits"] == {"env": ["DRIVER=2"]}
    (known,) = world.checkpoint.claims().values()
    assert known.token == "driver-2"


def test_a_gpu_that_is_gone_leaves_the_spec_of_its_claim(world: World) -> None:
    """The container runs on; a restart of it reports the missing device node."""
    world.server.add(allocated(A, result("gpu-0")))
    world.prepare(A)
    spec = world.spec(A)
    world.use(gpu(1), token="driver-2")
    world.preparation.refresh(world.state)
    assert world.spec(A) == spec


@pytest.mark.parametrize("directory", ["cdi", "plugins"])
def test_a_full_or_missing_directory_is_an_error_of_the_claim(
    world: World, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuhook.dra.claims.checkpoint import durable_file

    real = durable_file.replace

    def full(path: str, data: bytes, mode: int) -> None:
        if directory in path:
            raise OSError(28, "No space left on device", path)
        real(path, data, mode)

    world.server.add(allocated(A, result("gpu-0")))
    with monkeypatch.context() as patched:
        patched.setattr(durable_file, "replace", full)
        with pytest.raises((GpuhookError, OSError), match="No space left"):
            world.prepare(A)
    assert list(world.specs.uids()) == []
    world.prepare(A)


def test_thousands_of_changes_are_written_together(world: World) -> None:
    """64 simultaneous claims need fewer writes than 128."""
    names = [named(f"c{number}") for number in range(64)]
    for name in names:
        world.server.add(allocated(name, result("gpu-0", shareID=name.uid)))
    found = in_threads(*(partial(world.prepare, name) for name in names))
    assert not [one for one in found if isinstance(one, Exception)]
    assert len(world.prepared()) == 64


def test_a_late_failure_leaves_what_another_driver_has_prepared(world: World) -> None:
    """During a rolling update, the kubelet repeats a slow call at the newer driver."""
    world.server.add(allocated(A, result("gpu-0")))
    newer = world.preparation

    def fail(*_: object) -> None:
        newer.prepare(A, lambda step: None)
        raise fault("GH2641", reason="it is slow")

    world.require_free = fail
    world.restart(is_alone=False)
    with refused("GH2641"):
        world.prepare(A)
    assert world.prepared() == ["a"]
    assert world.specs.has(A.uid)


def test_a_claim_that_has_other_devices_meanwhile_keeps_its_spec(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    world.prepare(A)
    real = world.checkpoint.claims
    former = real()
    world.unprepare(A)
    world.server.add(allocated(A, result("gpu-1")))
    world.prepare(A)
    spec = world.spec(A)
    answers = [former]
    world.checkpoint.claims = lambda: answers.pop() if answers else real()  # type: ignore[method-assign]
    world.use(*world.devices, token="driver-2")
    world.preparation.refresh(world.state)
    assert world.spec(A) == spec


def test_a_status_that_cannot_be_written_fails_no_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    world.server.add(allocated(A, result("gpu-0")))
    monkeypatch.setattr(world.statuses, "put", put)
    with pytest.raises(RuntimeError):
        world.prepare(A)
    assert world.prepare(A)


def test_a_full_disk_is_named(world: World) -> None:
    world.server.add(allocated(A, result("gpu-0")))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            world.prepare(A)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert caught.value.filename == world.checkpoint.path
    assert not [name for name in world.files() if name.endswith(".tmp")]
