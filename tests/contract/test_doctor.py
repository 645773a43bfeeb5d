# SPDX-License-Identifier: Apache-2.0
"""`gpuhook doctor` as it is installed, on a node with real containers that lost their GPUs."""

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
from tests.contract.runtimes import BOTH, Result, run_command
from tests.contract.test_repair import reset
from tests.contract.test_repair_others import denied, forgotten
from tests.simulated.node import make_node


def doctor(live: Live, *words: str, checks: str = "containers") -> Result:
    """Call `gpuhook doctor` where the container's runtime runs."""
    command = [*live.container.around.prefix, str(live.installation.bindir / "gpuhook"), "doctor"]
    command += [*live.installation.node.options, *live.roots, "--checks", checks, *words]
    return run_command(command, live.env)


def results(live: Live, *words: str, checks: str = "containers") -> dict[str, Any]:
    """Return the document of doctor, held against its schema."""
    done = doctor(live, "-o", "json", *words, checks=checks)
    assert done.rc in (0, 1), done.stderr
    document = done.document("doctor")
    assert document["well"] == (done.rc == 0)
    return document


def of(live: Live, document: dict[str, Any], *statuses: str) -> list[dict[str, Any]]:
    """Return the results about the container."""
    return [
        one
        for one in document["results"]
        if one["subject"] == live.id and one["status"] in statuses
    ]


@BOTH
def test_lost_access_is_told_and_mended(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The command that doctor prints is the one that brings the GPU back."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, apart, engine, cgroup) as live:
        assert of(live, results(live), "failed", "warning") == []
        reset(live)
        (one,) = of(live, results(live), "failed")
        assert one["id"] == "containers.access"
        assert "Failed to initialize NVML: Unknown Error" in one["meaning"]
        assert shlex.split(one["command"]) == ["gpuhook", "repair", live.id]
        shown = doctor(live, "--quiet")
        assert shown.rc == 1
        assert f"fix:     gpuhook repair {live.id}" in shown.stdout
        assert live.gpuhook("repair").rc == 0
        assert of(live, results(live), "failed", "warning") == []


def test_a_node_without_any_spec(apart: Installation, tmp_path: Path) -> None:
    """Of a container that NVIDIA's hook gave its GPU nothing tells but the container itself."""
    made = sleeping(tmp_path, env=asks("2"), hooks=prestart(apart))
    with started(made, apart) as live:
        forgotten(live)
        apart.spec.unlink()
        assert of(live, results(live), "failed", "warning") == []
        denied(live, apart.device(2), "/dev/nvidiactl")
        (one,) = of(live, results(live), "failed")
        assert one["id"] == "containers.access"
        assert "/dev/nvidiactl" in one["said"]
        assert "repair" not in one["command"]


def test_who_asks_in_vain(apart: Installation, tmp_path: Path) -> None:
    """A container of a plain runtime, whose image requests GPUs, is warned of."""
    made = sleeping(tmp_path, env=asks("all"))
    with started(made, apart) as live:
        document = results(live)
        (one,) = of(live, document, "failed", "warning")
        assert (one["id"], one["status"]) == ("containers.request", "warning")


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_gpu_that_falls_off_the_bus_under_a_container(
    is_loaded: bool, node8: Installation, tmp_path: Path
) -> None:
    """The node has no spec in its directories: the running container alone names the GPU."""
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
        done = doctor(live, "--quiet", checks="driver,containers")
    assert done.rc == 1
    first = done.stdout.splitlines()[0]
    assert first.startswith("Root cause: driver.gpu: the only GPU is missing from the PCI bus: ")
    (holders,) = re.findall(r"\(used by ([^)]*)\)", first)
    assert live.id in holders.split(", ")
    assert "no NVIDIA GPU" not in done.stdout + done.stderr
    assert "the driver that runs" not in done.stdout


def test_a_node_that_a_container_made_names_no_gpu(node8: Installation, tmp_path: Path) -> None:
    """A container with CAP_MKNOD makes any node; only its cgroup shows what it was assigned."""
    node = make_node(tmp_path / "node", "t4")
    mine = Installation(tmp_path / "gpuhook", node8.bindir, node).apart(tmp_path / "apart")
    made = sleeping(tmp_path, env=asks("0"))
    with wrapped(made, mine) as live:
        dev = Path(f"/proc/{live.pid}/root/dev")
        os.mknod(dev / "nvidia7", 0o666 | stat.S_IFCHR, os.makedev(195, 7))
        os.mknod(dev / "nvidia8", 0o666 | stat.S_IFCHR, (dev / "nvidia0").stat().st_rdev)
        # Of another driver: each container may open 1:9, which is /dev/urandom.
        os.mknod(dev / "nvidia9", 0o666 | stat.S_IFCHR, Path("/dev/urandom").stat().st_rdev)
        document = results(live, checks="driver.gpu,driver.bus,containers")
    assert [one["said"] for one in document["results"] if one["status"] == "failed"] == []


def test_nothing_is_changed(apart: Installation, tmp_path: Path) -> None:
    """Neither the container nor the state: an entry of a container that is gone stays as well."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, apart) as live:
        entry = apart.entry()
        gone = apart.state / "containers/00000000-gone.json"
        gone.write_text(json.dumps({**entry, "id": "gone", "pid": 1 << 30}), "utf-8")
        reset(live)
        for path in (apart.state / "compiled").iterdir():
            path.unlink()
        before, files = live.seen(), _files(apart.place)
        assert results(live, checks="containers,installation")["well"] is False
        assert live.seen() == before
        assert _files(apart.place) == files


def test_the_readings_of_this_machine(node8: Installation, tmp_path: Path) -> None:
    """A simulated node that runs: its driver answers, its files are those of its own tree."""
    words = [*node8.node.options, "-o", "json", "--checks", "gpuhook,containers"]
    done = run_command(
        [str(node8.bindir / "gpuhook"), "doctor", *words],
        {**os.environ, "GPUHOOK_STATE_DIR": str(tmp_path / "state")},
    )
    document = done.document("doctor")
    assert (document["live"], document["root"]) == (True, node8.node.host_root)
    assert not (tmp_path / "state").exists()
    told = {one["id"]: one["status"] for one in document["results"]}
    assert told["installation.launchers"] == "not-applicable"
    assert told["containers.state"] != "not-applicable"


def _files(place: Path) -> dict[str, tuple[int, int]]:
    """Return each file of a node's own settings, specs and state, with its time and size."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(place.rglob("*"))
    }
