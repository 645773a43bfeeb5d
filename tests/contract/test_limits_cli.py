# SPDX-License-Identifier: Apache-2.0
"""`gpuhook limits` on real containers and a simulated driver: set, shown, cleared, put back."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.request.memory_request import MemoryLimit, mount_path
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import Installation, asks, installation
from tests.contract.limiting import uuid
from tests.contract.live import Live, sleeping, started, wrapped
from tests.contract.runtimes import ENGINES, Result
from tests.simulated import driver_memory, stub_limits
from tests.simulated.node import make_node
from tests.waiting import eventually

GIB = 1 << 30
MIB = 1 << 20


def cgroup(live: Live) -> str:
    name = Path(f"/proc/{live.pid}/cgroup").read_text("utf-8").split("0::")[1].strip()
    return f"/sys/fs/cgroup{name}"


def held(live: Live) -> dict[str, tuple[int, int]]:
    """Return what the driver holds the container to: hard and soft bytes by GPU."""
    where = cgroup(live)
    kept = [one for one in stub_limits.recorded(live.installation.node) if one.path == where]
    return {one.uuid: (one.hard, one.soft) for one in kept}


def wiped(live: Live) -> None:
    """Let the driver forget all limits, as one that was loaded again."""
    shutil.rmtree(Path(live.installation.node.nvml_profile).with_name("nvml-stub.limits"))


def limits(live: Live, verb: str, *words: str) -> Result:
    """Call `gpuhook limits VERB CONTAINER WORDS`."""
    return live.gpuhook("limits", live.id, *words, name=verb)


def changed(live: Live, verb: str, *words: str) -> dict[str, Any]:
    """Return the report of a change, which must have gone well."""
    done = limits(live, verb, *words, "-o", "json")
    assert done.rc == 0, done
    document = done.document("changes")
    assert document["schema"] == f"gpuhook/limits-{verb}/v1"
    (one,) = document["containers"]
    return dict(one)


def shown(live: Live, *words: str) -> dict[str, Any]:
    """Return what `gpuhook limits show` tells of the container."""
    done = limits(live, "show", *words, "-o", "json")
    assert done.rc == 0, done
    return done.document("limits")


def of_gpu(live: Live, index: int) -> dict[str, Any]:
    """Return what is shown of one GPU."""
    (one,) = shown(live)["containers"]
    (found,) = [told for told in one["gpus"] if told["gpu"] == uuid(live.installation, index)]
    return dict(found)


def refused(live: Live, code: str, verb: str, *words: str) -> str:
    done = limits(live, verb, *words)
    assert done.rc == 1, done
    assert f"Error {code}:" in done.stderr, done
    return str(done.stderr)


def records(live: Live) -> list[dict[str, Any]]:
    """Return the ledger's records of the container."""
    directory = live.installation.state / "containers"
    (path,) = [path for path in directory.glob("*.json") if live.id in path.name]
    return list(json.loads(path.read_bytes()).get("memory", []))


@ENGINES
def test_set_show_clear(engine: str, mine: Installation, tmp_path: Path) -> None:
    """The driver holds what was set, the ledger knows it, and clear takes it away."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, mine, engine, "v2") as live:
        before = of_gpu(live, 2)
        assert (before["ledger"], before["by"], before["used"]) == (None, "nobody", None)
        planned = changed(live, "set", "--limit", "4Gi", "--request", "2Gi", "--dry-run")
        assert held(live) == {}
        done = changed(live, "set", "--limit", "4Gi", "--request", "2Gi")
        assert done["steps"] == planned["steps"]
        (step,) = done["steps"]
        expected = f"{uuid(mine, 2)}: 4Gi (2Gi of it guaranteed), was no limit"
        assert step == f"memory limit of {expected}"
        assert held(live) == {uuid(mine, 2): (4 * GIB, 2 * GIB)}
        (record,) = records(live)
        assert (record["by"], record["granted"]) == ("driver", None)
        assert record["cgroups"][0] == cgroup(live)
        told = of_gpu(live, 2)
        assert told["driver"] == told["ledger"] == {"limit": 4 * GIB, "request": 2 * GIB}
        assert (told["agrees"], told["granted"], told["by"]) == (True, None, "driver")
        assert changed(live, "set", "--limit", "4Gi")["steps"] == []
        (rounded,) = changed(live, "set", "--limit", "1.5G", "--dry-run")["steps"]
        assert ": 1430Mi" in rounded  # 1.5 * 10^9 bytes, in whole MiB
        assert changed(live, "set", "--limit", "1.5Gi")["steps"] != []
        assert held(live) == {uuid(mine, 2): (1536 * MIB, 1536 * MIB)}
        assert changed(live, "clear")["steps"] != []
        assert (held(live), records(live)) == ({}, [])
        assert changed(live, "clear")["steps"] == []


@ENGINES
def test_what_is_used(engine: str, mine: Installation, short_path: Path, tmp_path: Path) -> None:
    """The used memory is printed, and no driver accepts a limit below it."""
    gpu = uuid(mine, 2)
    with driver_memory.serving(short_path, mine.node) as driver:
        made = sleeping(tmp_path, env=asks("2"))
        made.mount(driver.socket, "/gpu.sock", "rw", "rbind")
        made.mount(driver.probe, "/gpu-probe")
        args = ["/gpu-probe", "/gpu.sock", gpu, "alloc", "3072", "hold"]
        made.write({**made.config(), "process": {**made.config()["process"], "args": args}})
        with wrapped(made, mine, engine, "v2") as live:
            driver.until(lambda held: sum(held.values()) == 3 * GIB)
            assert changed(live, "set", "--limit", "4Gi")["notes"] == []
            assert of_gpu(live, 2)["used"] == 3 * GIB
            (note,) = changed(live, "set", "--limit", "2Gi", "--dry-run")["notes"]
            assert "it uses 3Gi now, more than 2Gi" in note
            assert "already use more than that" in refused(live, "GH1251", "set", "--limit", "2Gi")
            assert held(live) == {gpu: (4 * GIB, 0)}
            text = limits(live, "show").stdout
            assert text.splitlines()[0].split()[-3:] == ["DRIVER", "USED", "BY"]
            assert text.splitlines()[1].split()[-3:] == ["4Gi", "3Gi", "driver"]


def test_a_grant_comes_back(mine: Installation, tmp_path: Path) -> None:
    """What was granted holds again after a clear; --all lifts it, and no repair brings it back."""
    gpu = uuid(mine, 2)
    made = sleeping(tmp_path, env=asks("2"))
    limit = MemoryLimit(gpu, 2 * GIB, GIB)
    made.mount(Path("/dev/null"), mount_path(VOCABULARY.memory_prefix, limit), "ro", "rbind")
    with wrapped(made, mine, "runc", "v2") as live:
        assert held(live) == {gpu: (2 * GIB, GIB)}
        changed(live, "set", "--limit", "6Gi")
        assert held(live) == {gpu: (6 * GIB, GIB)}
        assert of_gpu(live, 2)["granted"] == {"limit": 2 * GIB, "request": GIB}
        changed(live, "set", "--limit", "5Gi", "--request", "0")
        assert held(live) == {gpu: (5 * GIB, 0)}
        (note,) = changed(live, "clear")["notes"]
        assert "has its granted limit" in note
        assert held(live) == {gpu: (2 * GIB, GIB)}
        assert "granted" not in records(live)[0]
        changed(live, "clear", "--all")
        assert held(live) == {}
        assert live.report("repair")["steps"] == []
        told = of_gpu(live, 2)
        assert (told["ledger"], told["agrees"]) == ({"limit": None, "request": 0}, True)
        assert told["granted"] == {"limit": 2 * GIB, "request": GIB}
        changed(live, "clear")
        assert held(live) == {gpu: (2 * GIB, GIB)}


@ENGINES
def test_repair(engine: str, mine: Installation, tmp_path: Path) -> None:
    """A driver that has forgotten a limit, or holds another one, gets it again."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, engine, "v2") as live:
        changed(live, "set", "--limit", "4Gi")
        assert live.report("repair")["steps"] == []
        wiped(live)
        document = shown(live)
        (finding,) = document["findings"]
        assert finding["code"] == "GH1785"
        assert f"gpuhook repair {live.id}" in finding["hint"]
        said = limits(live, "show")
        assert "GH1785" in said.stderr
        facts = live.gpuhook("inspect", "-o", "json").document("inspect")
        assert [one["code"] for one in facts["findings"]] == ["GH1785"]
        assert "MEMORY OF" in live.gpuhook("inspect").stdout
        planned = live.report("repair", "--dry-run")
        assert planned["steps"] == [f"memory limit of {gpu}: 4Gi, was no limit"]
        assert held(live) == {}
        assert live.report("repair")["steps"] == planned["steps"]
        assert held(live) == {gpu: (4 * GIB, 0)}
        outside(live, gpu, 8 * GIB)
        (step,) = live.report("repair")["steps"]
        assert step.endswith("4Gi, was 8Gi")
        wiped(live)
        done = live.gpuhook("repair", name="--all")
        assert f"{live.id}: done\n  memory limit of {gpu}: 4Gi" in done.stdout
        assert held(live) == {gpu: (4 * GIB, 0)}
        assert live.gpuhook("inspect", "--exit-code").rc == 0


def outside(live: Live, gpu: str, hard: int) -> None:
    """Let another process set a limit for the container."""
    program = (
        "import sys; from gpuhook.memory_limits.warm.nvml_limits import NvmlDriver\n"
        "with NvmlDriver(sys.argv[1]) as driver: driver.set(sys.argv[2], sys.argv[3], "
        "int(sys.argv[4]), 0)"
    )
    python = ["/usr/bin/python3", "-c", program]
    words = [live.installation.node.nvml_library, gpu, cgroup(live), str(hard)]
    command = [*live.container.around.prefix, *python, *words]
    subprocess.run(command, check=True, env={**live.env, "PYTHONPATH": str(CHECKOUT)})


def test_all_or_nothing(mine: Installation, tmp_path: Path) -> None:
    """If one of two GPUs refuses, the other one's limit and the ledger are as before."""
    first, second = uuid(mine, 2), uuid(mine, 3)
    with wrapped(sleeping(tmp_path, env=asks("2,3")), mine, "runc", "v2") as live:
        changed(live, "set", "--limit", "4Gi", "--gpu", "2")
        noted = records(live)
        stub_limits.fail_setting(mine.node, second, stub_limits.NOT_SUPPORTED)
        assert second in refused(live, "GH1251", "set", "--limit", "6Gi")
        assert held(live) == {first: (4 * GIB, 0)}
        assert records(live) == noted
        stub_limits.mend(mine.node, second)
        changed(live, "set", "--limit", "6Gi")
        assert held(live) == dict.fromkeys((first, second), (6 * GIB, 0))
        changed(live, "clear", "--gpu", first[:12])
        assert held(live) == {second: (6 * GIB, 0)}


def impatient(live: Live, place: Path) -> Live:
    """Return the container with a command line that waits a second for a driver, not twenty."""
    text = (live.installation.bindir / "gpuhook").read_text(encoding="utf-8")
    sooner = "from gpuhook.memory_limits.warm import cgroup_limits; cgroup_limits.SECONDS = 1.0; "
    starts = "from gpuhook.cli import main"
    assert starts in text
    launcher = place / "impatient/gpuhook"
    launcher.parent.mkdir()
    launcher.write_text(text.replace(starts, sooner + starts), encoding="utf-8")
    launcher.chmod(0o755)
    return replace(live, installation=replace(live.installation, bindir=launcher.parent))


def test_a_driver_that_hangs(mine: Installation, tmp_path: Path) -> None:
    """No call waits for ever, nothing is recorded that was not done, and the next call works."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        changed(live, "set", "--limit", "4Gi")
        noted = records(live)
        stub_limits.take_long(mine.node, gpu, 900_000)
        refused(impatient(live, tmp_path), "GH1256", "set", "--limit", "6Gi")
        assert records(live) == noted
        stub_limits.mend(mine.node, gpu)
        assert held(live) == {gpu: (4 * GIB, 0)}
        changed(live, "set", "--limit", "6Gi")
        assert held(live) == {gpu: (6 * GIB, 0)}


def test_a_driver_that_holds_something_else(mine: Installation, tmp_path: Path) -> None:
    """What is read back counts: nothing is noted that does not hold."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        stub_limits.read_back(mine.node, uuid(mine, 2), 3 * GIB, 0)
        refused(live, "GH1252", "set", "--limit", "6Gi")
        assert records(live) == []


def test_a_container_of_a_plain_runtime(mine: Installation, tmp_path: Path) -> None:
    """One that gpuhook did not make gets an entry with its limit, and `ps` tells of it."""
    with started(sleeping(tmp_path), mine, "runc", "v2") as live:
        refused(live, "GH1780", "set", "--limit", "4Gi")
        refused(live, "GH1780", "clear")
        live.attach("2")
        changed(live, "set", "--limit", "3776Mi")
        assert held(live) == {uuid(mine, 2): (3776 * MIB, 0)}
        (one,) = [one for one in mine.holders() if one["id"] == live.id]
        (told,) = one["memory"]
        assert (told["limit"], told["by"]) == (3776 * MIB, "driver")
        (way,) = one["sharing"]
        assert (way["sharing"], way["memory_by"]) == ("none", "driver")
        assert "3776Mi driver" in mine.gpuhook("ps").stdout
        every = json.loads(mine.gpuhook("limits", "show", "-o", "json").stdout)
        assert [one["container"] for one in every["containers"]] == [live.id]
        away = live.detach("2")
        assert away["steps"][-1] == f"memory limit of {uuid(mine, 2)}: no limit, was 3776Mi"
        assert (held(live), records(live)) == ({}, [])
        refused(live, "GH1780", "clear")


def test_refusals(mine: Installation, tmp_path: Path) -> None:
    """What cannot be done is refused with its reason, and nothing is changed."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        said = refused(live, "GH1781", "set", "--limit", "4Gi", "--gpu", "5")
        assert f"2 ({uuid(mine, 2)})" in said
        assert uuid(mine, 2) in refused(live, "GH1782", "set", "--limit", "900Gi")
        usage = limits(live, "set", "--limit", "4096")
        assert usage.rc == 2
        assert "write 4096Mi" in usage.stderr
        assert limits(live, "set", "--limit", "1Gi", "--request", "2Gi").rc == 2
        assert (held(live), records(live)) == ({}, [])
        live.container.call("kill", "KILL")
        eventually(lambda: live.container.state["status"] == "stopped")
        refused(live, "GH1738", "set", "--limit", "4Gi")


def test_cgroup_v1(mine: Installation, tmp_path: Path) -> None:
    """The driver limits cgroups of version 2 alone."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine) as live:
        done = limits(live, "set", "--limit", "4Gi")
        if done.rc == 0:
            pytest.skip("this machine's own cgroups are v2")
        assert "Error GH1312:" in done.stderr
        assert "kernel parameter" in done.stderr
        assert "gpuhook limits clear --all" in done.stderr
        assert "GH1312" in limits(live, "show").stderr


def test_an_older_driver(node8: Installation, tmp_path: Path) -> None:
    """It has no limits to be set; what there is can be shown all the same, and repair goes on."""
    older = make_node(tmp_path / "node", "t4", memory_limits=False)
    mine = installation(tmp_path / "older", "t4", node8.bindir)
    shutil.copy(older.nvml_library, mine.node.nvml_library)
    with wrapped(sleeping(tmp_path, env=asks("0")), mine, "runc", "v2") as live:
        assert "CUDA 13.4" in refused(live, "GH1250", "set", "--limit", "4Gi")
        done = limits(live, "show")
        assert done.rc == 0
        assert "warning: GH1250" in done.stderr
        assert live.report("repair")["notes"] == []


def test_a_limit_that_nobody_holds_can_be_lifted(node8: Installation, tmp_path: Path) -> None:
    """If no driver needs a call, the ledger drops the limit, whatever calls the driver has."""
    older = make_node(tmp_path / "node", "t4", memory_limits=False)
    mine = installation(tmp_path / "older", "t4", node8.bindir)
    shutil.copy(older.nvml_library, mine.node.nvml_library)
    made = sleeping(tmp_path, env=asks("0"))
    path = mount_path(VOCABULARY.memory_prefix, MemoryLimit(uuid(mine, 0), 2 * GIB, GIB))
    made.mount(Path("/dev/null"), path, "ro", "rbind")
    with wrapped(made, mine, "runc", "v2") as live:
        assert "nothing limits its use" in limits(live, "show").stderr
        refused(live, "GH1250", "clear")
        planned = changed(live, "clear", "--all", "--dry-run")
        assert [one["hard"] for one in records(live)] == [2 * GIB]
        done = changed(live, "clear", "--all")
        assert done["steps"] == planned["steps"]
        assert any("only the ledger" in note for note in done["notes"])
        assert of_gpu(live, 0)["ledger"] == {"limit": None, "request": 0}
        assert "nothing limits its use" not in limits(live, "show").stderr
        assert changed(live, "clear", "--all")["steps"] == []


def test_a_limit_above_the_card_is_clipped_by_repair(node8: Installation, tmp_path: Path) -> None:
    """It was recorded while no driver reported the card's memory: then as a create makes it."""
    older = make_node(tmp_path / "node", "t4", memory_limits=False)
    mine = installation(tmp_path / "newer", "t4", node8.bindir)
    newer = tmp_path / "newer.so"
    shutil.copy(mine.node.nvml_library, newer)
    shutil.copy(older.nvml_library, mine.node.nvml_library)
    made = sleeping(tmp_path, env=asks("0"))
    path = mount_path(VOCABULARY.memory_prefix, MemoryLimit(uuid(mine, 0), 900 * GIB))
    made.mount(Path("/dev/null"), path, "ro", "rbind")
    with wrapped(made, mine, "runc", "v2") as live:
        assert [one["hard"] for one in records(live)] == [900 * GIB]
        shutil.copy(newer, mine.node.nvml_library)
        live.report("repair")
        whole = mine.gpu(0).memory_bytes
        assert held(live) == {uuid(mine, 0): (whole, 0)}
        (record,) = records(live)
        assert (record["by"], record["hard"]) == ("driver", whole)


def test_mig(node8: Installation, tmp_path: Path) -> None:
    """An instance has the memory of its profile: no limit is set on it."""
    mine = installation(tmp_path / "mig", "a100-mig", node8.bindir)
    gpu = mine.node.node.gpus[0]
    made = sleeping(tmp_path, env=asks(gpu.instances[0].uuid))
    with wrapped(made, mine, "runc", "v2") as live:
        refused(live, "GH1783", "set", "--limit", "4Gi")
        refused(live, "GH1783", "set", "--limit", "4Gi", "--gpu", "0:0")
        assert held(live) == {}


def test_a_lost_gpu_keeps_no_repair_from_the_rest(mine: Installation, tmp_path: Path) -> None:
    """What the driver does not tell is noted; the container's nodes come back all the same."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        changed(live, "set", "--limit", "4Gi")
        stub_limits.fail_reading(mine.node, gpu, stub_limits.UNKNOWN)
        assert f"warning: {live.id}: {gpu}: " in limits(live, "show").stderr
        Path(f"/proc/{live.pid}/root{mine.device(2)}").unlink()
        done = live.report("repair")
        assert [step.split()[0] for step in done["steps"]] == ["device"]
        (note,) = done["notes"]
        assert note.startswith(f"memory limit of {gpu}: ")
