# SPDX-License-Identifier: Apache-2.0
"""A device has several names: a detach by one of them applies to all."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.contract.bundles import rule
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import Live, sleeping, started, wrapped


def listed(live: Live) -> list[dict[str, object]]:
    """Return the container's entries in `gpuhook ps`."""
    return [one for one in live.installation.holders() if one["id"] == live.id]


@pytest.mark.parametrize("given", ["2", "uuid", "replica"])
@pytest.mark.parametrize("taken", ["uuid", "2", "node"])
def test_detach_by_another_name(
    given: str, taken: str, node8: Installation, tmp_path: Path
) -> None:
    """After an attach by one name and a detach by another, `ps` no longer lists the device."""
    uuid = str(node8.gpu(2).uuid)
    names = {"2": "2", "uuid": uuid, "replica": f"{uuid}::1", "node": node8.device(2)}
    with started(sleeping(tmp_path), node8) as live:
        live.attach(names[given])
        assert len(listed(live)) == 1
        live.detach(names[taken])
        assert listed(live) == []


def test_detach_of_one_replica_keeps_the_other(node8: Installation, tmp_path: Path) -> None:
    """The device remains for the other replica; attach and detach print the ledger's change."""
    uuid = str(node8.gpu(2).uuid)
    with started(sleeping(tmp_path), node8) as live:
        live.attach(f"{uuid}::1")
        assert f"recorded in the ledger: {uuid}::2" in live.attach(f"{uuid}::2")["notes"]
        done = live.detach(f"{uuid}::1")
        assert (done["steps"], done["notes"]) == ([], [f"removed from the ledger: {uuid}::1"])
        (one,) = listed(live)
        assert one["replicas"] == [f"{uuid}::2"]
        assert node8.device(2) in live.view().gpus()


@pytest.mark.parametrize("whole", ["2", "uuid", "granted", "by an engine"])
def test_detach_of_a_replica_keeps_the_whole_device(
    whole: str, node8: Installation, tmp_path: Path
) -> None:
    """If the container also has the whole device, a detach removes only the replica's record."""
    uuid, mine = str(node8.gpu(2).uuid), node8.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks(uuid if whole == "granted" else "2"))
    attached = {"2": "2", "uuid": uuid}.get(whole)
    runtime = [] if attached else [mine.runtime]
    with started(made, mine, "runc", "host", *runtime) as live:
        if attached:
            live.attach(attached)
        if whole == "by an engine":
            shutil.rmtree(mine.state / "containers")  # only config.json records it
        live.attach(f"{uuid}::1")
        done = live.detach(f"{uuid}::1")
        assert (done["steps"], done["notes"]) == ([], [f"removed from the ledger: {uuid}::1"])
        assert listed(live)[0]["replicas"] == []
        assert mine.device(2) in live.view().gpus()
        assert live.detach("2")["steps"] != []
        assert mine.device(2) not in live.view().gpus()


def test_detach_of_an_unknown_replica(apart: Installation, tmp_path: Path) -> None:
    """No removal from the ledger is reported; a node of the device is removed."""
    uuid = str(apart.gpu(2).uuid)
    with wrapped(sleeping(tmp_path, env=asks("2")), apart) as live:
        for replica in (f"{uuid}::1", f"{apart.gpu(3).uuid}::1"):
            done = live.detach(replica)
            assert (done["steps"], done["notes"]) == ([], [])
        assert apart.device(2) in live.view().gpus()
    place = tmp_path / "other"
    with started(sleeping(place), apart) as live:
        live.attach("3")
        node = Path(f"/proc/{live.pid}/root{apart.device(2)}")
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(195, apart.gpu(2).minor or 0))
        done = live.detach(f"{uuid}::1")
        assert done["steps"]
        assert not any("removed from the ledger" in note for note in done["notes"])
        assert not node.exists()


def test_replica_by_index_and_by_uuid(node8: Installation, tmp_path: Path) -> None:
    """A replica's name can have the device's index or its UUID."""
    uuid = str(node8.gpu(2).uuid)
    with started(sleeping(tmp_path), node8) as live:
        live.attach(f"{uuid}::1")
        assert "removed from the ledger: " + f"{uuid}::1" in live.detach("2::1")["notes"]
        assert listed(live) == []


@pytest.mark.parametrize("strategy", ["uuid", "index"])
def test_abbreviated_uuid(strategy: str, node8: Installation, tmp_path: Path) -> None:
    """The beginning of a UUID names a device or a replica, even if the spec has only indices."""
    uuid, mine = str(node8.gpu(2).uuid), node8.apart(tmp_path / "node")
    mine.generate("--device-name-strategy", strategy)
    with started(sleeping(tmp_path), mine) as live:
        live.attach(uuid[:12] + "::1")
        assert listed(live)[0]["replicas"] == [f"{uuid}::1"]
        live.detach(uuid[:12])
        assert listed(live) == []


def test_short_forms_of_an_index(node8: Installation, tmp_path: Path) -> None:
    """A device that was attached by a range is detached by another short form of its index."""
    with started(sleeping(tmp_path), node8) as live:
        live.attach("0-1,03")
        assert {node8.device(n) for n in (0, 1, 3)} <= set(live.view().gpus())
        live.detach("01")
        gpus = set(live.view().gpus())
        assert {node8.device(0), node8.device(3)} <= gpus
        assert node8.device(1) not in gpus
        assert "6-9: nvidia.com/gpu=8: no such device" in live.refused(
            "GH1102", "attach", "--device", "6-9"
        )


def test_attach_and_detach_of_none(node8: Installation, tmp_path: Path) -> None:
    """`none` is the control nodes and the driver's files; GPUs must be detached before them."""
    with started(sleeping(tmp_path), node8) as live:
        before = live.seen()
        live.attach("none")
        assert set(live.view().gpus()) == CONTROL
        live.attach("2")
        assert node8.device(2) in live.refused("GH1770", "detach", "--device", "none")
        live.detach("2")
        live.attach("none")
        live.detach("none")
        after = live.seen()
        assert (after.files, after.nodes, len(after.mounts)) == (
            before.files, before.nodes, len(before.mounts),
        )  # fmt: skip
        assert live.detach("none")["steps"] == []


def test_detach_by_device_node(apart: Installation, tmp_path: Path) -> None:
    """Without a CDI spec, the device node names the device; another node is refused."""
    with started(sleeping(tmp_path), apart) as live:
        error = live.refused("GH1759", "detach", "--device", "/dev/null")
        assert "/dev/null is not a device node of the driver; the container has no node of" in error
        live.attach("2")
        apart.spec.unlink()
        error = live.refused("GH1771", "detach", "--device", "2")
        assert "gpuhook refresh" in error
        assert f"--device {apart.device(2)}, which needs no CDI spec" in error
        assert live.detach(apart.device(2))["steps"]


def test_detach_with_a_wildcard_rule_is_refused(node8: Installation, tmp_path: Path) -> None:
    """On cgroup v1, a rule for a whole major cannot be denied for one device: nothing changes."""
    wild = {**rule(195, 0), "minor": -1}
    resources = {"devices": [{"allow": False, "access": "rwm"}, wild]}
    with started(sleeping(tmp_path, linux={"resources": resources}), node8) as live:
        live.attach("2")
        before = live.seen()
        live.refused("GH1704", "detach", "--device", "2")
        after = live.seen()
        assert (after.nodes, after.files) == (before.nodes, before.files)
        assert sorted(after.rules) == sorted(before.rules)
        assert live.report("repair")["steps"] == []


def test_request_without_a_gpu_is_reported(node8: Installation, tmp_path: Path) -> None:
    """A plain runtime ignores the container's request: inspect and repair report this."""
    with started(sleeping(tmp_path, env=asks("all")), node8) as live:
        done = live.gpuhook("inspect", "--exit-code")
        assert done.rc == 1
        assert "GH1745" in done.stdout
        assert "NVIDIA_VISIBLE_DEVICES=all" in done.stdout
        (note,) = live.report("repair")["notes"]
        assert "NVIDIA_VISIBLE_DEVICES=all" in note
        assert "run `gpuhook attach`" in note
        live.attach("2")
        assert live.gpuhook("inspect", "--exit-code").rc == 0
        assert live.report("repair")["notes"] == []
