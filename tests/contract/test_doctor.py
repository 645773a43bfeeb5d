# SPDX-License-Identifier: Apache-2.0
"""`gpuhook doctor`, as installed, on a node with containers that lost their GPUs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import Installation, asks
from tests.contract.live import Live, prestart, sleeping, started, wrapped
from tests.contract.runtimes import BOTH, Result, run_command, run_gpuhook
from tests.contract.test_repair import reset
from tests.contract.test_repair_others import denied, forgotten
from tests.simulated.node import make_node


def doctor(live: Live, *words: str, checks: str = "containers") -> Result:
    """Call `gpuhook doctor` in the mount namespace of the container's runtime."""
    own = ["doctor", *live.installation.node.options, *live.roots, "--checks", checks, *words]
    return run_gpuhook(live.launcher, own, live.env, live.container.around)


def results(live: Live, *words: str, checks: str = "containers") -> dict[str, Any]:
    """Return the document of doctor, checked against its schema."""
    done = doctor(live, "-o", "json", *words, checks=checks)
    assert done.rc in (0, 1), done.stderr
    document = done.document("doctor")
    assert document["well"] == (done.rc == 0)
    return document


def results_of(live: Live, document: dict[str, Any], *statuses: str) -> list[dict[str, Any]]:
    """Return the results about the container with one of the statuses."""
    return [
        one
        for one in document["results"]
        if one["subject"] == live.id and one["status"] in statuses
    ]


@BOTH
def test_lost_access_is_reported_with_a_command_that_fixes_it(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The command that doctor prints restores access to the GPU."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, apart, engine, cgroup) as live:
        assert results_of(live, results(live), "failed", "warning") == []
        reset(live)
        (one,) = results_of(live, results(live), "failed")
        assert one["id"] == "containers.access"
        assert "Failed to initialize NVML: Unknown Error" in one["meaning"]
        assert shlex.split(one["command"]) == ["gpuhook", "repair", live.id]
        shown = doctor(live, "--quiet")
        assert shown.rc == 1
        assert f"fix:     gpuhook repair {live.id}" in shown.stdout
        assert live.gpuhook("repair").rc == 0
        assert results_of(live, results(live), "failed", "warning") == []


def test_lost_access_is_reported_without_a_spec(apart: Installation, tmp_path: Path) -> None:
    """Without a spec and a ledger entry, doctor finds the GPU from the running container."""
    made = sleeping(tmp_path, env=asks("2"), hooks=prestart(apart))
    with started(made, apart) as live:
        forgotten(live)
        apart.spec.unlink()
        assert results_of(live, results(live), "failed", "warning") == []
        denied(live, apart.device(2), "/dev/nvidiactl")
        (one,) = results_of(live, results(live), "failed")
        assert one["id"] == "containers.access"
        assert "/dev/nvidiactl" in one["said"]
        assert "repair" not in one["command"]


def test_unfulfilled_request_is_a_warning(apart: Installation, tmp_path: Path) -> None:
    """A container of a plain runtime, whose image requests GPUs, causes a warning."""
    made = sleeping(tmp_path, env=asks("all"))
    with started(made, apart) as live:
        document = results(live)
        (one,) = results_of(live, document, "failed", "warning")
        assert (one["id"], one["status"]) == ("containers.request", "warning")


@pytest.mark.parametrize("is_loaded", [True, False])
def test_missing_gpu_of_a_container_is_the_root_cause(
    is_loaded: bool, node8: Installation, tmp_path: Path
) -> None:
    """Without a spec, only the running container shows that the node had a GPU."""
    node = make_node(tmp_path / "node", "t4")
    mine = Installation(tmp_path / "gpuhook", node8.bindir, node).apart(tmp_path / "apart")
    made = sleeping(tmp_path, env=asks("0"))
    with wrapped(made, mine) as live:
        assert results(live, checks="driver.gpu")["well"] is True
        host = Path(node.host_root)
        shutil.rmtree(host / "sys/bus/pci/devices")
        (host / "sys/bus/pci/devices").mkdir()
        shutil.rmtree(host / "proc/driver/nvidia/gpus")
        if not is_loaded:
            shutil.rmtree(host / "sys/module/nvidia")
            shutil.rmtree(host / "proc/driver/nvidia")
        result = doctor(live, "--quiet", checks="driver,containers")
    assert result.rc == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith("Root cause: driver.gpu: the only GPU is missing from the PCI bus: ")
    (holders,) = re.findall(r"\(used by ([^)]*)\)", first)
    assert live.id in holders.split(", ")
    assert "no NVIDIA GPU" not in result.stdout + result.stderr
    assert "the driver that runs" not in result.stdout


def test_node_made_by_a_container_is_no_missing_gpu(node8: Installation, tmp_path: Path) -> None:
    """A container with CAP_MKNOD can make any node; only its cgroup shows assigned devices."""
    node = make_node(tmp_path / "node", "t4")
    mine = Installation(tmp_path / "gpuhook", node8.bindir, node).apart(tmp_path / "apart")
    made = sleeping(tmp_path, env=asks("0"))
    with wrapped(made, mine) as live:
        dev = Path(f"/proc/{live.pid}/root/dev")
        os.mknod(dev / "nvidia7", 0o666 | stat.S_IFCHR, os.makedev(195, 7))
        os.mknod(dev / "nvidia8", 0o666 | stat.S_IFCHR, (dev / "nvidia0").stat().st_rdev)
        # A device of another driver that each container can open: 1:9, /dev/urandom.
        os.mknod(dev / "nvidia9", 0o666 | stat.S_IFCHR, Path("/dev/urandom").stat().st_rdev)
        document = results(live, checks="driver.gpu,driver.bus,containers")
    failed = [one["said"] for one in document["results"] if one["status"] == "failed"]
    others = re.compile("[0-9a-f]{64} ")  # containers of engines, of tests that run meanwhile
    assert [said for said in failed if not others.match(said)] == []


def test_doctor_changes_nothing(apart: Installation, tmp_path: Path) -> None:
    """Neither the container nor the state changes; an entry of an ended container remains."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, apart) as live:
        entry = apart.entry()
        ended_entry = apart.state / "containers/00000000-gone.json"
        ended_entry.write_text(json.dumps({**entry, "id": "gone", "pid": 1 << 30}), "utf-8")
        reset(live)
        for path in (apart.state / "compiled").iterdir():
            path.unlink()
        before, files = live.seen(), _files(apart.place)
        assert results(live, checks="containers,installation")["well"] is False
        assert live.seen() == before
        assert _files(apart.place) == files


def test_doctor_checks_the_simulated_node(node8: Installation, tmp_path: Path) -> None:
    """On a simulated node that runs, the driver answers, and files of the host are not checked."""
    words = [*node8.node.options, "-o", "json", "--checks", "gpuhook,containers"]
    result = run_command(
        [str(node8.bindir / "gpuhook"), "doctor", *words],
        {**os.environ, "GPUHOOK_STATE_DIR": str(tmp_path / "state")},
    )
    document = result.document("doctor")
    assert (document["live"], document["root"]) == (True, node8.node.host_root)
    assert not (tmp_path / "state").exists()
    statuses = {one["id"]: one["status"] for one in document["results"]}
    assert statuses["installation.launchers"] == "not-applicable"
    assert statuses["containers.state"] != "not-applicable"


def _files(place: Path) -> dict[str, tuple[int, int]]:
    """Return each file of a node's settings, specs and state, with its time and size."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(place.rglob("*"))
    }
