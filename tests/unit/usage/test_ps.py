# SPDX-License-Identifier: Apache-2.0
"""The output of `gpuhook ps`."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import state_roots
from gpuhook.device_plugin.config.gpuhook_section import KILL, REPORT
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.policy_plan import COMPUTE_MODE, TIME_SLICE
from gpuhook.device_plugin.gpu_policies.saved_policies import SavedPolicy
from gpuhook.device_plugin.guard import guard_marks
from gpuhook.device_plugin.guard.guard_policy import TERM, GuardMark, Sent
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.host.hot import procfs
from gpuhook.request.memory_request import NO_LIMIT, MemoryLimit, mount_path
from gpuhook.usage import claim_holders, ps_text, visibility
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from gpuhook.vendors.nvidia.inventory import dump, dump_file
from gpuhook.vendors.nvidia.usage import nvidia_devices
from tests.kubelet.pod_resources import PodResources, claiming_pod
from tests.unit.other_user import AS_ROOT, make_readable, other_user
from tests.unit.table_rows import printed_rows

UUIDS = [f"GPU-{n}aaaaaaa-0000-0000-0000-00000000000{n}" for n in range(2)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command an empty state directory."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(state_roots, "PLACES", ())  # hide the containers of this machine
    monkeypatch.setattr(device_checkpoint, "ROOTS", ())
    return tmp_path


def ps(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ps", *arguments], prog_name="gpuhook")


def container(place: Path, identity: str, **entry: Any) -> None:
    """Record a container in the ledger, with a runtime's state."""
    (place / "runc" / identity).mkdir(parents=True)
    ledger.record(str(place / "runc"), identity, {"pid": 0, "started": None, **entry})


def holding(gpu: int, replica: int | None = None) -> dict[str, Any]:
    replicas = [] if replica is None else [f"{UUIDS[gpu]}::{replica}"]
    return {
        "devices": [f"nvidia.com/gpu={UUIDS[gpu]}"],
        "nodes": [f"/dev/nvidia{gpu}", "/dev/nvidiactl"],
        "replicas": replicas,
        "requested": replicas or [UUIDS[gpu]],
        "source": "NVIDIA_VISIBLE_DEVICES",
        "route": "wrapper",
        "runtime": "/usr/bin/runc",
        "bundle": "/b",
    }


def listed() -> list[dict[str, Any]]:
    document = json.loads(ps("-o", "json").stdout)
    assert document["schema"] == "gpuhook/ps/v1"
    found: list[dict[str, Any]] = document["containers"]
    return found


def test_ps_without_holders() -> None:
    """The data is empty, and standard error has a note."""
    shown = ps()
    assert shown.exit_code == 0
    assert "no container has a GPU" in shown.stderr
    assert len(shown.stdout.splitlines()) == 1
    assert listed() == []
    assert ps("--no-headers").stdout == ""


def test_narrow_table_mentions_the_wide_one(place: Path) -> None:
    told = [{"code": "GH1007", "message": "ignored"}]
    container(place, "a" * 64, route="", source="", warnings=told)
    for arguments in ([], ["-o", "wide"], ["-o", "json"], ["-o", "name"]):
        said = ps(*arguments).stderr
        assert "1 container started without a requested GPU (GH1007)" in said
        assert ("ps -o wide" in said) is (not arguments)


def test_two_containers_on_one_gpu(place: Path) -> None:
    """Both are listed, the oldest first, each with its replica, on the same GPU."""
    container(place, "one", pod="train-0", namespace="ml", **holding(0, 0))
    container(place, "two", **holding(0, 1))
    found = listed()
    assert [(c["id"], c["pod"], c["namespace"]) for c in found] == [
        ("one", "train-0", "ml"),
        ("two", None, None),
    ]
    assert [c["replicas"] for c in found] == [[f"{UUIDS[0]}::0"], [f"{UUIDS[0]}::1"]]
    assert [c["gpus"] for c in found] == [[UUIDS[0]], [UUIDS[0]]]
    header, first, second = ps().stdout.splitlines()
    assert header.split() == list(ps_text.HEADERS)
    assert first.split()[:2] == ["one", "train-0"]
    assert second.split()[:2] == ["two", "-"]
    bare = ps("--no-headers").stdout.splitlines()
    assert [line.split() for line in bare] == [first.split(), second.split()]
    wide = printed_rows(ps("-o", "wide").stdout)
    assert [row["NAMESPACE"] for row in wide] == ["ml", "-"]
    assert [row["REPLICAS"] for row in wide] == [f"{UUIDS[0]}::{n}" for n in range(2)]
    assert all(row["SINCE"].endswith(" ago") and row["UUIDS"] == UUIDS[0] for row in wide)


def limited(gpu: int, hard: int, by: str = "driver") -> dict[str, Any]:
    """Return a record of a limit in the ledger."""
    told = {"device": UUIDS[gpu], "hard": hard, "soft": 1 << 30, "asked": False, "by": by}
    return {**told, "trouble": "" if by else "GH1250: too old", "cgroups": []}


def shown_limits() -> dict[str, str]:
    return {row["CONTAINER"]: row["LIMIT"] for row in printed_rows(ps().stdout)}


def test_memory_limits_are_shown(place: Path) -> None:
    """The limit and what enforces it, once if all GPUs have the same."""
    both = {"devices": [f"nvidia.com/gpu={uuid}" for uuid in UUIDS], "route": "wrapper"}
    same = [limited(0, 3776 << 20), limited(1, 3776 << 20)]
    container(place, "same", **both, memory=same)
    container(place, "mixed", **both, memory=[limited(0, 4 << 30), limited(1, 2 << 30, by="")])
    container(place, "lifted", **both, memory=[{**limited(0, NO_LIMIT), "soft": 0}])
    container(place, "free", **both)
    assert shown_limits() == {
        "same": "3776Mi driver",
        "mixed": "4Gi driver,2Gi nobody",
        "lifted": "none",
        "free": "-",
    }
    wide = printed_rows(ps("-o", "wide").stdout)[0]
    assert [wide[key] for key in ("REQUEST", "TIME-SLICE", "COMPUTE-MODE")] == ["1Gi", "-", "-"]
    found = {one["id"]: one["memory"] for one in listed()}
    assert found["mixed"][1] == {
        "gpu": UUIDS[1],
        "limit": 2 << 30,
        "request": 1 << 30,
        "by": "nobody",
        "trouble": "GH1250: too old",
        "guard": None,
    }
    assert (found["lifted"][0]["limit"], found["free"]) == (None, [])


def test_limit_that_is_not_enforced_has_a_reason(place: Path) -> None:
    """Also for a container without neighbours."""
    unheld = {**limited(0, 3 << 30, by=""), "trouble": "GH1250: too old"}
    container(place, "one", **holding(0), memory=[unheld])
    mounts = [{"destination": f"{VOCABULARY.memory_prefix}/{UUIDS[1]},hard=3072,soft=3072"}]
    unnoted = {**holding(1), **bundled(place, "unnoted", {"mounts": mounts})}
    container(place, "unnoted", **unnoted)
    shown = ps("--isolation").stdout
    assert "memory:     limited to 3Gi, which is not enforced (GH1250: too old)" in shown
    assert "memory:     limited to 3Gi, which is not enforced:" in shown
    assert "this container has the GPU's entire" not in shown


def share(identity: str, gpu: int = 0, hard: int = 3776 << 20) -> GuardShare:
    return GuardShare(identity, ("", "", identity), UUIDS[gpu], hard)


def test_limits_enforced_by_the_guard(place: Path) -> None:
    """A guard that ends processes enforces the limit; one that only reports does not."""
    for name in ("kept", "above", "unnoted", "alone"):
        own = {} if name == "unnoted" else {"memory": [limited(0, 3776 << 20, by="")]}
        container(place, name, **holding(0), **own)
    container(place, "held", **holding(0), memory=[limited(0, 3776 << 20)])
    sent = (Sent(77, 1, TERM, time.time()),)
    above = GuardMark(share("above"), 5000 << 20, time.time() - 200, sent=sent)
    watched = tuple(map(share, ("kept", "above", "unnoted")))
    for action, by in ((KILL, "guard"), (REPORT, "nobody")):
        guard_marks.write([above], action, watched)
        assert shown_limits() == {
            "kept": f"3776Mi {by}",
            "above": f"3776Mi {by} (over: 5000Mi)",
            "unnoted": f"3776Mi {by}",
            "alone": "3776Mi nobody",
            "held": "3776Mi driver",
        }
        found = {one["id"]: one["memory"][0]["guard"] for one in listed()}
        assert (found["alone"], found["held"]) == (None, None)
        assert found["kept"] == {"limit": 3776 << 20, "action": action, "over": None}
        over = found["above"]["over"]
        assert (over["used"], over["since"]) == (5000 << 20, above.since)
        assert over["done"] == [{"signal": TERM, "pid": 77, "at": sent[0].at}]
        told = sharing()
        assert (told["above"], told["alone"]) == (("time-slicing", by), ("time-slicing", "nobody"))
    guard_marks.write([above], KILL, watched)
    shown = ps("--isolation").stdout
    assert "memory:     limited to 3776Mi, monitored by the device plugin" in shown
    wanted = "now:        uses 5000Mi, above its limit of 3776Mi since 3m ago; the guard: SIGTERM"
    assert f"{wanted} for process 77" in shown
    assert shown.count("now:") == 1


def test_time_slices_and_compute_modes(place: Path) -> None:
    """Those of the node, if they are known."""
    document = place / "state/node.json"
    document.parent.mkdir()
    gpus = [{"minor": n, "uuid": uuid, "time_slice": "long"} for n, uuid in enumerate(UUIDS)]
    document.write_text(json.dumps({"gpus": [{**gpus[0], "compute_mode": "unknown"}, gpus[1]]}))
    document.chmod(0o644)
    container(place, "one", **holding(0))
    assert listed()[0]["turns"] == {UUIDS[0]: {"time_slice": "long"}}
    assert ps("-o", "wide").stdout.splitlines()[1].split()[-2:] == ["long", "-"]
    notes = {
        (UUIDS[0], TIME_SLICE): SavedPolicy(before="default", ours="short"),
        (UUIDS[0], COMPUTE_MODE): SavedPolicy(before="default", ours="exclusive-process"),
    }
    saved_policies.write(notes, recovery_evidence.boot_id())  # as the device plugin does
    assert ps("-o", "wide").stdout.splitlines()[1].split()[-2:] == ["short", "exclusive-process"]


def bundled(place: Path, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the key of an entry whose bundle has this config.json."""
    bundle = place / "bundles" / name
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", **config}))
    return {"bundle": str(bundle)}


def sharing() -> dict[str, tuple[str, str]]:
    """Return the sharing of each container's GPU, and what enforces its memory limit."""
    return {
        one["id"]: (told["sharing"], told["memory_by"])
        for one in listed()
        for told in one["sharing"]
    }


def test_exclusive_and_time_sliced_gpus(place: Path) -> None:
    """A GPU that two containers hold is time-sliced, also without a setting."""
    container(place, "one", **holding(0))
    assert sharing() == {"one": ("none", "nobody")}
    assert "the GPU's entire memory" in ps("--isolation").stdout
    container(place, "alone", **holding(1), memory=[limited(1, 4 << 30)])
    alone = next(one for one in listed() if one["id"] == "alone")["sharing"][0]
    assert (alone["sharing"], alone["memory_by"]) == ("none", "driver")
    assert alone["isolation"]["memory"].startswith("limited to 4Gi, enforced by the driver")
    os.rmdir(place / "runc/alone")
    container(place, "two", **{**holding(0), "memory": [limited(0, 4 << 30)]})
    assert sharing() == {"one": ("time-slicing", "nobody"), "two": ("time-slicing", "driver")}
    shown = ps("--isolation").stdout
    assert "two GPU-0aaaaaaa: shared, time-slicing" in shown
    assert "  memory:     not limited" in shown
    assert "  memory:     limited to 4Gi, enforced by the driver" in shown
    assert shown.count("  crash:") == 2


def test_sharing_is_read_from_the_device_plugins_traces(place: Path) -> None:
    """Replicas, the directory of MPS, the mount of the grant."""
    container(place, "slice", pod="a", namespace="ml", **holding(0, 1))
    pipe = {"process": {"env": ["CUDA_MPS_PIPE_DIRECTORY=/mps/pipe"]}}
    container(place, "mps", **{**holding(1, 0), **bundled(place, "mps", pipe)})
    for name, is_asked in (("units", True), ("share", False)):
        limit = MemoryLimit(UUIDS[0], 4 << 30, is_asked=is_asked)
        path = mount_path(VOCABULARY.memory_prefix, limit)
        mounts = [{"source": "/dev/null", "destination": path}]
        granted = {**holding(0), **bundled(place, name, {"mounts": mounts})}
        container(place, name, **granted, memory=[limited(0, 4 << 30)])
    mig = {**holding(0), "devices": ["nvidia.com/gpu=MIG-1"], "nodes": []}
    container(place, "mig", **mig)
    assert sharing() == {
        "slice": ("time-slicing", "nobody"),
        "mps": ("mps", "mps"),
        "units": ("memory-units", "driver"),
        "share": ("time-slicing", "driver"),
        "mig": ("none", "hardware"),
    }
    shown = ps("--isolation", "-o", "wide").stdout
    assert f"slice ml/a GPU-0aaaaaaa {UUIDS[0]}: shared, time-slicing" in shown
    assert "mig MIG-1: not shared" in shown
    assert ps("--isolation").exit_code == 0


def test_gpus_are_identified_by_their_nodes(place: Path) -> None:
    """With an inventory, the device nodes of a container identify its GPUs."""
    gpus = [{"minor": n, "uuid": uuid} for n, uuid in enumerate(UUIDS)]
    node = place / "state/node.json"
    node.parent.mkdir()
    node.write_text(json.dumps({"gpus": gpus}))
    node.chmod(0o644)
    entry = {**holding(0), "devices": ["nvidia.com/gpu=all"]}
    entry["nodes"] = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm"]
    container(place, "all", **entry)
    assert listed()[0]["gpus"] == UUIDS
    node.write_text("no json")
    assert listed()[0]["gpus"] == ["all"]


def test_node_record_that_others_can_write_is_ignored(place: Path) -> None:
    """`gpuhook explain` uses the record, too."""
    node = place / "state/node.json"
    node.parent.mkdir()
    node.write_text(json.dumps(dump.as_dict(dump_file.load("t4"))))
    node.chmod(0o644)
    assert nvidia_devices.recorded_node() == dump_file.load("t4")
    node.chmod(0o666)
    assert nvidia_devices.recorded_node() is None


def test_mig_instances_are_identified_by_their_nodes(place: Path) -> None:
    """A container with the capability node of an instance has the instance, not its GPU."""
    node = place / "state/node.json"
    node.parent.mkdir()
    document = dump.as_dict(dump_file.load("a100-mig"))
    document["gpus"][0]["instances"][2]["compute_instance_minor"] = "unknown"
    node.write_text(json.dumps(document))
    node.chmod(0o644)
    caps = "/dev/nvidia-caps/nvidia-cap"
    both = ["/dev/nvidia2", f"{caps}300", f"{caps}301", f"{caps}302", "/dev/nvidiactl"]
    container(place, "both", **{**holding(0), "nodes": both})
    container(place, "whole", **{**holding(0), "nodes": ["/dev/nvidia1"]})
    unknown = ["/dev/nvidia0", f"{caps}84", f"{caps}85"]
    devices = ["nvidia.com/gpu=0:2"]
    container(place, "unknown", **{**holding(0), "nodes": unknown, "devices": devices})
    gpus = document["gpus"]
    expected = [one["uuid"] for one in gpus[1]["instances"][1:3]]
    assert [one["gpus"] for one in listed()] == [expected, [gpus[2]["uuid"]], ["0:2"]]
    rows = {row["CONTAINER"]: row["GPUS"] for row in printed_rows(ps().stdout)}
    instances = [one["profile"] for one in gpus[1]["instances"]]
    assert instances[1] == instances[2]
    assert rows == {
        "both": f"1:1,1:2 ({instances[1]})",
        "whole": f"2 ({gpus[2]['name'].removeprefix('NVIDIA ')})",
        "unknown": f"0:2 ({gpus[0]['instances'][2]['profile']})",
    }


def test_removed_container_is_not_listed(place: Path) -> None:
    """An entry ends when the runtime's state of its container is removed."""
    container(place, "one", **holding(0))
    os.rmdir(place / "runc/one")
    assert listed() == []


def test_control_characters_are_escaped(place: Path) -> None:
    """In the name of a pod or a replica."""
    entry = {**holding(0), "replicas": ["\x1b]0;owned\x07\n::1"], "pod": "a\x1b[31mb\r"}
    container(place, "one", **entry)
    lines = ps().stdout.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "a\\x1b[31mb\\r" in lines[1]
    assert listed()[0]["pod"] == entry["pod"]


@pytest.fixture
def public() -> Iterator[Path]:
    """Give a directory that every user can read."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


@AS_ROOT
def test_user_without_permissions_gets_a_warning(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only root can read the runtimes' state, containers may have exited."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(public / "state"))
    for identity in ("one", "two"):
        container(public, identity, **holding(0))
    (public / "runc").chmod(0o700)
    make_readable(public / "state")
    with other_user(ps):
        shown = ps()
        document = ps("-o", "json")
    assert shown.exit_code == document.exit_code == 0
    assert shown.stderr == "warning: run as root: 2 entries could not be checked\n"
    assert [one["id"] for one in json.loads(document.stdout)["containers"]] == ["one", "two"]
    assert len(listed()) == 2


@AS_ROOT
def test_partly_readable_entries_are_listed(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning reports the others."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(public / "state"))
    container(public, "one", **holding(0))
    (public / "runc").chmod(0o700)
    own = {"pid": os.getpid(), "started": procfs.start_time(os.getpid()), **holding(1)}
    ledger.record("", "two", own)
    make_readable(public / "state")
    with other_user(ps):
        shown = ps()
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 3
    assert shown.stderr == "warning: run as root: 1 entry could not be checked\n"


@AS_ROOT
def test_unreadable_state_directory_is_a_fault(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have containers."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(public / "state"))
    (public / "state").mkdir(mode=0o755)
    (public / "closed").mkdir(mode=0o700)
    monkeypatch.setattr(state_roots, "PLACES", (str(public / "closed"),))
    with other_user(ps):
        shown = ps()
    assert shown.exit_code == 1
    assert f"warning: permission denied: {public / 'closed'}; run as root to" in shown.stderr
    assert ps().exit_code == 0


@AS_ROOT
def test_ledger_of_root_is_mentioned_to_users(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's ledger is not root's."""
    monkeypatch.delenv("GPUHOOK_STATE_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(public / "run"))
    monkeypatch.setattr(visibility, "OF_ROOT", str(public / "containers"))
    with other_user(ps):
        assert ps().exit_code == 0
    (public / "containers").mkdir()
    (public / "containers/one.json").touch()
    with other_user(ps):
        shown = ps()
    assert shown.exit_code == 1
    assert "run as root: 1 entry of root's ledger was not read" in shown.stderr
    assert "no container" not in shown.stderr
    (public / "containers").chmod(0o700)
    with other_user(ps):
        assert "root's ledger: Permission denied" in ps().stderr


@pytest.mark.parametrize("wrong", ["file", "dangling/state", "nothing/state"])
def test_invalid_state_directory_is_a_fault(
    wrong: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or a missing directory is a fault that names the variable."""
    (place / "file").touch()
    (place / "dangling").symlink_to(place / "nowhere")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(place / wrong))
    failed = ps()
    assert failed.exit_code == 1
    message, hint = failed.stderr.splitlines()
    assert message.startswith(f"Error GH1592: {place / wrong}")
    assert "in the state directory" in message
    assert hint.endswith("GPUHOOK_STATE_DIR names it")


def test_missing_default_state_directory_is_empty(place: Path) -> None:
    """A note helps if its name is misspelt."""
    shown = ps()
    assert shown.exit_code == 0
    assert f"no container has a GPU: {place}/state does not exist yet" in (shown.stderr)


def test_node_without_a_driver(place: Path) -> None:
    """An empty list has a note; --no-nvml does not report a missing driver."""
    (place / "state").mkdir(exist_ok=True)
    shown = ps("--driver-root", str(place))
    assert shown.stderr == "no container has a GPU, and this node has no GPU driver\n"
    assert ps("--no-nvml").stderr == "no container has a GPU\n"


def test_claims_of_a_container_come_from_the_kubelet(place: Path) -> None:
    """Without the API server; a kubelet without a driver of gpuhook is not called."""
    container(place, "one", pod="train-0", namespace="ml", container="main", **holding(0))
    container(place, "two", **holding(1))
    with TemporaryDirectory() as root:  # the path of a socket is short
        (Path(root) / "pod-resources").mkdir()
        with PodResources(Path(root) / "pod-resources/kubelet.sock") as kubelet:
            kubelet.pods = [
                claiming_pod("ml", "train-0", "gpus", "gpu.nvidia.com", "gpu-0", "3f2a"),
                claiming_pod("ml", "train-0", "nic", "net.example.com", "eth0"),
            ]
            assert '"claims": []' in ps("-o", "json", "--kubelet-root", root).stdout
            assert kubelet.calls == 0
            (Path(root) / "plugins/gpu.nvidia.com").mkdir(parents=True)
            shown = ps("-o", "json", "--kubelet-root", root)
            wide = ps("-o", "wide", "--kubelet-root", root)
        one, two = json.loads(shown.stdout)["containers"]
        silent = ps("--kubelet-root", root)
    about = {"namespace": "ml", "claim": "gpus", "request": "", "share": "3f2a"}
    assert one["claims"] == [{**about, "device": "gpu-0"}]
    assert two["claims"] == []
    assert "ml/gpus=3f2a" in wide.stdout
    assert "cannot read which container holds which claim" in silent.stderr


def test_kubelet_confirms_the_claims_of_a_container() -> None:
    """A record has the UUID and the request; a variable of the container proves nothing."""
    mine = {"namespace": "ml", "claim": "gpus", "request": "a", "device": "GPU-1", "share": "s-1"}
    forged = {**mine, "claim": "others"}
    held = {"namespace": "ml", "claim": "gpus", "request": "", "device": "gpu-1", "share": "s-1"}
    more = {**held, "device": "gpu-2", "share": "s-2"}
    assert claim_holders.confirmed([mine, forged], [more, held]) == [mine, more]
