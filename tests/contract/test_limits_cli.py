# SPDX-License-Identifier: Apache-2.0
"""`gpuhook limits` on real containers and a simulated driver: set, show, clear, repair."""

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


def driver_limits(live: Live) -> dict[str, tuple[int, int]]:
    """Return the limits that the driver enforces: hard and soft bytes by GPU."""
    path = cgroup(live)
    limits = [one for one in stub_limits.recorded(live.installation.node) if one.path == path]
    return {one.uuid: (one.hard, one.soft) for one in limits}


def forget_limits(live: Live) -> None:
    """Make the driver forget all limits, as after it is reloaded."""
    shutil.rmtree(Path(live.installation.node.nvml_profile).with_name("nvml-stub.limits"))


def limits(live: Live, verb: str, *words: str) -> Result:
    """Run `gpuhook limits VERB CONTAINER WORDS`."""
    return live.gpuhook("limits", live.id, *words, name=verb)


def change(live: Live, verb: str, *words: str) -> dict[str, Any]:
    """Return the report of a change, which must succeed."""
    done = limits(live, verb, *words, "-o", "json")
    assert done.rc == 0, done
    document = done.document("changes")
    assert document["schema"] == f"gpuhook/limits-{verb}/v1"
    (one,) = document["containers"]
    return dict(one)


def show(live: Live, *words: str) -> dict[str, Any]:
    """Return the document of `gpuhook limits show`."""
    done = limits(live, "show", *words, "-o", "json")
    assert done.rc == 0, done
    return done.document("limits")


def show_gpu(live: Live, index: int) -> dict[str, Any]:
    """Return the facts of one GPU in the document of `limits show`."""
    (one,) = show(live)["containers"]
    (gpu,) = [
        one_gpu for one_gpu in one["gpus"] if one_gpu["gpu"] == uuid(live.installation, index)
    ]
    return dict(gpu)


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
def test_set_show_and_clear_a_limit(engine: str, mine: Installation, tmp_path: Path) -> None:
    """`set` writes a limit to the driver and the ledger, `clear` removes it from both."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, mine, engine, "v2") as live:
        before = show_gpu(live, 2)
        assert (before["ledger"], before["by"], before["used"]) == (None, "nobody", None)
        planned = change(live, "set", "--limit", "4Gi", "--request", "2Gi", "--dry-run")
        assert driver_limits(live) == {}
        done = change(live, "set", "--limit", "4Gi", "--request", "2Gi")
        assert done["steps"] == planned["steps"]
        (step,) = done["steps"]
        expected = f"{uuid(mine, 2)}: 4Gi (2Gi of it guaranteed), was no limit"
        assert step == f"memory limit of {expected}"
        assert driver_limits(live) == {uuid(mine, 2): (4 * GIB, 2 * GIB)}
        (record,) = records(live)
        assert (record["by"], record["granted"]) == ("driver", None)
        assert record["cgroups"][0] == cgroup(live)
        shown = show_gpu(live, 2)
        assert shown["driver"] == shown["ledger"] == {"limit": 4 * GIB, "request": 2 * GIB}
        assert (shown["agrees"], shown["granted"], shown["by"]) == (True, None, "driver")
        assert change(live, "set", "--limit", "4Gi")["steps"] == []
        (rounded,) = change(live, "set", "--limit", "1.5G", "--dry-run")["steps"]
        assert ": 1430Mi" in rounded  # 1.5 * 10^9 bytes, in whole MiB
        assert change(live, "set", "--limit", "1.5Gi")["steps"] != []
        assert driver_limits(live) == {uuid(mine, 2): (1536 * MIB, 1536 * MIB)}
        assert change(live, "clear")["steps"] != []
        assert (driver_limits(live), records(live)) == ({}, [])
        assert change(live, "clear")["steps"] == []


@ENGINES
def test_limit_below_the_used_memory_is_refused(
    engine: str, mine: Installation, short_path: Path, tmp_path: Path
) -> None:
    """`show` prints the used memory; the driver accepts no limit below it."""
    gpu = uuid(mine, 2)
    with driver_memory.serving(short_path, mine.node) as driver:
        made = sleeping(tmp_path, env=asks("2"))
        made.mount(driver.socket, "/gpu.sock", "rw", "rbind")
        made.mount(driver.probe, "/gpu-probe")
        args = ["/gpu-probe", "/gpu.sock", gpu, "alloc", "3072", "hold"]
        made.write({**made.config(), "process": {**made.config()["process"], "args": args}})
        with wrapped(made, mine, engine, "v2") as live:
            driver.until(lambda used: sum(used.values()) == 3 * GIB)
            assert change(live, "set", "--limit", "4Gi")["notes"] == []
            assert show_gpu(live, 2)["used"] == 3 * GIB
            (note,) = change(live, "set", "--limit", "2Gi", "--dry-run")["notes"]
            assert "it uses 3Gi, more than 2Gi" in note
            assert "already use more than this limit" in refused(
                live, "GH1251", "set", "--limit", "2Gi"
            )
            assert driver_limits(live) == {gpu: (4 * GIB, 0)}
            text = limits(live, "show").stdout
            assert text.splitlines()[0].split()[-3:] == ["DRIVER", "USED", "BY"]
            assert text.splitlines()[1].split()[-3:] == ["4Gi", "3Gi", "driver"]


def test_clear_restores_the_granted_limit(mine: Installation, tmp_path: Path) -> None:
    """`clear` restores the granted limit; `clear --all` removes it, also for a later repair."""
    gpu = uuid(mine, 2)
    made = sleeping(tmp_path, env=asks("2"))
    limit = MemoryLimit(gpu, 2 * GIB, GIB)
    made.mount(Path("/dev/null"), mount_path(VOCABULARY.memory_prefix, limit), "ro", "rbind")
    with wrapped(made, mine, "runc", "v2") as live:
        assert driver_limits(live) == {gpu: (2 * GIB, GIB)}
        change(live, "set", "--limit", "6Gi")
        assert driver_limits(live) == {gpu: (6 * GIB, GIB)}
        assert show_gpu(live, 2)["granted"] == {"limit": 2 * GIB, "request": GIB}
        change(live, "set", "--limit", "5Gi", "--request", "0")
        assert driver_limits(live) == {gpu: (5 * GIB, 0)}
        (note,) = change(live, "clear")["notes"]
        assert "has its granted limit" in note
        assert driver_limits(live) == {gpu: (2 * GIB, GIB)}
        assert "granted" not in records(live)[0]
        change(live, "clear", "--all")
        assert driver_limits(live) == {}
        assert live.report("repair")["steps"] == []
        shown = show_gpu(live, 2)
        assert (shown["ledger"], shown["agrees"]) == ({"limit": None, "request": 0}, True)
        assert shown["granted"] == {"limit": 2 * GIB, "request": GIB}
        change(live, "clear")
        assert driver_limits(live) == {gpu: (2 * GIB, GIB)}


@ENGINES
def test_repair_restores_a_changed_limit(engine: str, mine: Installation, tmp_path: Path) -> None:
    """`show` and `inspect` report a limit that the driver lost or changed; `repair` restores it."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, engine, "v2") as live:
        change(live, "set", "--limit", "4Gi")
        assert live.report("repair")["steps"] == []
        forget_limits(live)
        document = show(live)
        (finding,) = document["findings"]
        assert finding["code"] == "GH1785"
        assert f"gpuhook repair {live.id}" in finding["hint"]
        printed = limits(live, "show")
        assert "GH1785" in printed.stderr
        facts = live.gpuhook("inspect", "-o", "json").document("inspect")
        assert [one["code"] for one in facts["findings"]] == ["GH1785"]
        assert "MEMORY OF" in live.gpuhook("inspect").stdout
        planned = live.report("repair", "--dry-run")
        assert planned["steps"] == [f"memory limit of {gpu}: 4Gi, was no limit"]
        assert driver_limits(live) == {}
        assert live.report("repair")["steps"] == planned["steps"]
        assert driver_limits(live) == {gpu: (4 * GIB, 0)}
        set_from_outside(live, gpu, 8 * GIB)
        (step,) = live.report("repair")["steps"]
        assert step.endswith("4Gi, was 8Gi")
        forget_limits(live)
        done = live.gpuhook("repair", name="--all")
        assert f"{live.id}: done\n  memory limit of {gpu}: 4Gi" in done.stdout
        assert driver_limits(live) == {gpu: (4 * GIB, 0)}
        assert live.gpuhook("inspect", "--exit-code").rc == 0


def set_from_outside(live: Live, gpu: str, hard: int) -> None:
    """Set a limit for the container in the driver, without gpuhook's ledger."""
    program = (
        "import sys; from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver\n"
        "with NvmlDriver(sys.argv[1]) as driver: driver.set(sys.argv[2], sys.argv[3], "
        "int(sys.argv[4]), 0)"
    )
    python = ["/usr/bin/python3", "-c", program]
    words = [live.installation.node.nvml_library, gpu, cgroup(live), str(hard)]
    command = [*live.container.around.prefix, *python, *words]
    subprocess.run(command, check=True, env={**live.env, "PYTHONPATH": str(CHECKOUT)})


def test_set_changes_all_gpus_or_none(mine: Installation, tmp_path: Path) -> None:
    """If one of two GPUs refuses, the limit of the other one and the ledger do not change."""
    first, second = uuid(mine, 2), uuid(mine, 3)
    with wrapped(sleeping(tmp_path, env=asks("2,3")), mine, "runc", "v2") as live:
        change(live, "set", "--limit", "4Gi", "--gpu", "2")
        recorded = records(live)
        stub_limits.fail_setting(mine.node, second, stub_limits.NOT_SUPPORTED)
        assert second in refused(live, "GH1251", "set", "--limit", "6Gi")
        assert driver_limits(live) == {first: (4 * GIB, 0)}
        assert records(live) == recorded
        stub_limits.repair(mine.node, second)
        change(live, "set", "--limit", "6Gi")
        assert driver_limits(live) == dict.fromkeys((first, second), (6 * GIB, 0))
        change(live, "clear", "--gpu", first[:12])
        assert driver_limits(live) == {second: (6 * GIB, 0)}


def with_short_timeout(live: Live, place: Path) -> Live:
    """Return the container with a command line that waits one second for the driver, not twenty."""
    text = (live.installation.bindir / "gpuhook").read_text(encoding="utf-8")
    patch = "from gpuhook.memory_limits.warm import cgroup_limits; cgroup_limits.SECONDS = 1.0; "
    main_import = "from gpuhook.cli import main"
    assert main_import in text
    launcher = place / "impatient/gpuhook"
    launcher.parent.mkdir()
    launcher.write_text(text.replace(main_import, patch + main_import), encoding="utf-8")
    launcher.chmod(0o755)
    return replace(live, installation=replace(live.installation, bindir=launcher.parent))


def test_hanging_driver_is_a_timeout(mine: Installation, tmp_path: Path) -> None:
    """The call ends with GH1256, the ledger does not change, and the next call works."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        change(live, "set", "--limit", "4Gi")
        recorded = records(live)
        stub_limits.take_long(mine.node, gpu, 900_000)
        refused(with_short_timeout(live, tmp_path), "GH1256", "set", "--limit", "6Gi")
        assert records(live) == recorded
        stub_limits.repair(mine.node, gpu)
        assert driver_limits(live) == {gpu: (4 * GIB, 0)}
        change(live, "set", "--limit", "6Gi")
        assert driver_limits(live) == {gpu: (6 * GIB, 0)}


def test_limit_is_read_back_from_the_driver(mine: Installation, tmp_path: Path) -> None:
    """If the driver reports a limit other than the one set, nothing is recorded."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        stub_limits.read_back(mine.node, uuid(mine, 2), 3 * GIB, 0)
        refused(live, "GH1252", "set", "--limit", "6Gi")
        assert records(live) == []


def test_limit_of_an_attached_gpu(mine: Installation, tmp_path: Path) -> None:
    """A container of a plain runtime gets a ledger entry with its limit, which `ps` prints."""
    with started(sleeping(tmp_path), mine, "runc", "v2") as live:
        refused(live, "GH1780", "set", "--limit", "4Gi")
        refused(live, "GH1780", "clear")
        live.attach("2")
        change(live, "set", "--limit", "3776Mi")
        assert driver_limits(live) == {uuid(mine, 2): (3776 * MIB, 0)}
        (one,) = [one for one in mine.holders() if one["id"] == live.id]
        (memory,) = one["memory"]
        assert (memory["limit"], memory["by"]) == (3776 * MIB, "driver")
        (way,) = one["sharing"]
        assert (way["sharing"], way["memory_by"]) == ("none", "driver")
        assert "3776Mi driver" in mine.gpuhook("ps").stdout
        every = json.loads(mine.gpuhook("limits", "show", "-o", "json").stdout)
        assert [one["container"] for one in every["containers"]] == [live.id]
        detached = live.detach("2")
        assert detached["steps"][-1] == f"memory limit of {uuid(mine, 2)}: no limit, was 3776Mi"
        assert (driver_limits(live), records(live)) == ({}, [])
        refused(live, "GH1780", "clear")


def test_invalid_set_is_refused(mine: Installation, tmp_path: Path) -> None:
    """A refused `set` states the reason and changes nothing."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        error = refused(live, "GH1781", "set", "--limit", "4Gi", "--gpu", "5")
        assert f"2 ({uuid(mine, 2)})" in error
        assert uuid(mine, 2) in refused(live, "GH1782", "set", "--limit", "900Gi")
        usage = limits(live, "set", "--limit", "4096")
        assert usage.rc == 2
        assert "write 4096Mi" in usage.stderr
        assert limits(live, "set", "--limit", "1Gi", "--request", "2Gi").rc == 2
        assert (driver_limits(live), records(live)) == ({}, [])
        live.container.call("kill", "KILL")
        eventually(lambda: live.container.state["status"] == "stopped")
        refused(live, "GH1738", "set", "--limit", "4Gi")


def test_set_on_cgroup_v1_is_refused(mine: Installation, tmp_path: Path) -> None:
    """The driver limits cgroups of version 2 only."""
    with wrapped(sleeping(tmp_path, env=asks("2")), mine) as live:
        done = limits(live, "set", "--limit", "4Gi")
        if done.rc == 0:
            pytest.skip("this machine's own cgroups are v2")
        assert "Error GH1312:" in done.stderr
        assert "kernel parameter" in done.stderr
        assert "gpuhook limits clear --all" in done.stderr
        assert "GH1312" in limits(live, "show").stderr


def test_older_driver_allows_show_and_repair(node8: Installation, tmp_path: Path) -> None:
    """A driver without memory limits refuses `set`; `show` and `repair` work."""
    older = make_node(tmp_path / "node", "t4", memory_limits=False)
    mine = installation(tmp_path / "older", "t4", node8.bindir)
    shutil.copy(older.nvml_library, mine.node.nvml_library)
    with wrapped(sleeping(tmp_path, env=asks("0")), mine, "runc", "v2") as live:
        assert "CUDA 13.4" in refused(live, "GH1250", "set", "--limit", "4Gi")
        done = limits(live, "show")
        assert done.rc == 0
        assert "warning: GH1250" in done.stderr
        assert live.report("repair")["notes"] == []


def test_clear_all_removes_an_unenforced_limit(node8: Installation, tmp_path: Path) -> None:
    """`clear --all` removes a limit that only the ledger has, on a driver without memory limits."""
    older = make_node(tmp_path / "node", "t4", memory_limits=False)
    mine = installation(tmp_path / "older", "t4", node8.bindir)
    shutil.copy(older.nvml_library, mine.node.nvml_library)
    made = sleeping(tmp_path, env=asks("0"))
    path = mount_path(VOCABULARY.memory_prefix, MemoryLimit(uuid(mine, 0), 2 * GIB, GIB))
    made.mount(Path("/dev/null"), path, "ro", "rbind")
    with wrapped(made, mine, "runc", "v2") as live:
        assert "nothing limits its use" in limits(live, "show").stderr
        refused(live, "GH1250", "clear")
        planned = change(live, "clear", "--all", "--dry-run")
        assert [one["hard"] for one in records(live)] == [2 * GIB]
        done = change(live, "clear", "--all")
        assert done["steps"] == planned["steps"]
        assert any("only the ledger" in note for note in done["notes"])
        assert show_gpu(live, 0)["ledger"] == {"limit": None, "request": 0}
        assert "nothing limits its use" not in limits(live, "show").stderr
        assert change(live, "clear", "--all")["steps"] == []


def test_repair_reduces_a_limit_to_the_memory_of_the_gpu(
    node8: Installation, tmp_path: Path
) -> None:
    """Such a limit was recorded while the driver did not report the GPU's memory."""
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
        assert driver_limits(live) == {uuid(mine, 0): (whole, 0)}
        (record,) = records(live)
        assert (record["by"], record["hard"]) == ("driver", whole)


def test_limit_of_a_mig_instance_is_refused(node8: Installation, tmp_path: Path) -> None:
    """The profile of a MIG instance decides its memory."""
    mine = installation(tmp_path / "mig", "a100-mig", node8.bindir)
    gpu = mine.node.node.gpus[0]
    made = sleeping(tmp_path, env=asks(gpu.instances[0].uuid))
    with wrapped(made, mine, "runc", "v2") as live:
        refused(live, "GH1783", "set", "--limit", "4Gi")
        refused(live, "GH1783", "set", "--limit", "4Gi", "--gpu", "0:0")
        assert driver_limits(live) == {}


def test_repair_continues_if_a_limit_is_unreadable(mine: Installation, tmp_path: Path) -> None:
    """The unreadable limit is a note; the container's device nodes are restored."""
    gpu = uuid(mine, 2)
    with wrapped(sleeping(tmp_path, env=asks("2")), mine, "runc", "v2") as live:
        change(live, "set", "--limit", "4Gi")
        stub_limits.fail_reading(mine.node, gpu, stub_limits.UNKNOWN)
        assert f"warning: {live.id}: {gpu}: " in limits(live, "show").stderr
        Path(f"/proc/{live.pid}/root{mine.device(2)}").unlink()
        done = live.report("repair")
        assert [step.split()[0] for step in done["steps"]] == ["device"]
        (note,) = done["notes"]
        assert note.startswith(f"memory limit of {gpu}: ")
