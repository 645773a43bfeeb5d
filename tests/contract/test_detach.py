# SPDX-License-Identifier: Apache-2.0
"""`gpuhook detach`: what it removes, whichever tool assigned the GPU, and what it reports."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries
from tests.contract import roots
from tests.contract.installation import CONTROL, LIBRARIES, MAJOR, Installation, asks
from tests.contract.live import (
    Live,
    OpenResults,
    open_repeatedly,
    sleeping,
    started,
    with_openable_gpu,
    wrapped,
)
from tests.contract.runtimes import BOTH
from tests.contract.test_attach import assert_as_before
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_prestart import PROFILE
from tests.contract.views import questions
from tests.waiting import eventually

HOLD = "exec 3<{}; while :; do sleep 60; done"


def tries(installation: Installation) -> list[str]:
    """Return the probe's questions about each GPU of the node."""
    return questions(tries=[installation.number(index) for index in range(8)])


@BOTH
def test_detach_hides_a_gpu_of_the_wrapper(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """detach denies and hides a GPU of the wrapper, attach restores it, and the rest remains."""
    made = sleeping(tmp_path, env=asks("2,3"))
    with wrapped(made, node8, engine, cgroup) as live:
        before, rules = live.seen(), live.rules()
        report = live.detach("2")
        assert any("config.json" in note for note in report["notes"]), report
        assert_nodes(live.view(tries(node8)), node8, CONTROL, 3)
        assert live.detach("2")["steps"] == []
        assert live.seen().mounts == before.mounts
        assert live.seen().files == before.files
        assert live.report("repair")["steps"] == []

        live.attach("2")
        assert_nodes(live.view(tries(node8)), node8, CONTROL, 2, 3)
        assert live.seen().nodes == before.nodes
        assert live.seen().mounts == before.mounts
        if cgroup == "host":
            assert live.rules() == rules
        live.detach("2,3")
        view = live.view(tries(node8))
        assert set(view.gpus()) <= CONTROL
        assert set(view.tries.values()) == {"EPERM"}
        assert live.seen().mounts == before.mounts


def test_detach_without_config_json_keeps_control_nodes(
    node8: Installation, tmp_path: Path
) -> None:
    """Without config.json, detach removes the GPU and keeps the nodes of the creation."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, node8) as live:
        live.detach("2")
        live.attach("2")
        config = live.bundle.file.rename(tmp_path / "config.json")
        live.detach("2")
        config.rename(live.bundle.file)  # runc exec needs it
        assert set(live.view().gpus()) == CONTROL


@BOTH
def test_detach_of_an_open_device_needs_force(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A device that a process has open remains; with --force the next open fails."""
    mine = with_openable_gpu(node8, tmp_path / "node")
    device = mine.device(2)
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/sh", "-c", HOLD.format(device)])
    with wrapped(made, mine, engine, cgroup) as live:
        descriptor = Path(f"/proc/{live.pid}/fd/3")
        eventually(descriptor.exists)
        before = live.seen()
        error = live.refused("GH1753", "detach", "--device", "2")
        assert f"process {live.pid} (sh, open)" in error
        assert live.seen() == before
        report = live.report("detach", "--device", "2", "--force")
        assert any(f"process {live.pid} (sh, open)" in note for note in report["notes"]), report
        assert descriptor.exists()
        assert device not in live.view().gpus()
        opened = live.inside("/bin/sh", "-c", f": <{device}")
        assert opened.rc != 0
        live.attach("2")
        assert live.inside("/bin/sh", "-c", f": <{device}").rc == 0


@BOTH
def test_open_follows_attach_and_detach(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A process that opens a device repeatedly succeeds between attach and detach only."""
    mine = with_openable_gpu(node8, tmp_path / "node")
    made = sleeping(tmp_path, args=open_repeatedly(mine.device(2)))
    with started(made, mine, engine, cgroup) as live:
        answers = OpenResults(live)
        answers.becomes("no")
        live.attach("2")
        answers.becomes("yes")
        live.report("detach", "--device", "2", "--force")
        answers.becomes("no")
        assert answers.pids() == {"1"}


@pytest.mark.parametrize("cgroup", ["host", "v2"])
def test_detach_from_a_container_without_gpus_has_no_steps(
    cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """In a container without GPUs detach has no steps; an unknown device is an error."""
    with started(sleeping(tmp_path), node8, "runc", cgroup) as live:
        before = live.seen()
        assert live.detach("2")["steps"] == []
        live.refused("GH1759", "detach", "--device", "17")
        assert live.seen() == before


def test_detach_keeps_files_changed_by_the_container(node8: Installation, tmp_path: Path) -> None:
    made = sleeping(tmp_path)
    with started(made, node8) as live:
        files = roots.listing(made.root)
        live.attach("2")
        script = [
            "rm /dev/nvidia-uvm && mknod /dev/nvidia-uvm c 1 3",
            f"rm {LIBRARIES}/libcuda.so && echo mine >{LIBRARIES}/libcuda.so",
            "echo mine >>/etc/ld.so.conf.d/00-gpuhook.conf",
            "ldconfig",
        ]
        result = live.inside("/bin/sh", "-ec", "; ".join(script))
        assert result.rc == 0, result
        live.detach("2")
        after = roots.listing(made.root)
        changed = {
            path for path in after.keys() | files.keys() if after.get(path) != files.get(path)
        }
        assert changed - {
            "etc/ld.so.cache",
            "var/cache/ldconfig/aux-cache",
            "var/cache/ldconfig",
        } == {
            "usr/lib/x86_64-linux-gnu/libcuda.so",
            "etc/ld.so.conf.d/00-gpuhook.conf",
        }
        cache_entries = ld_cache_entries.parse((made.root / "etc/ld.so.cache").read_bytes())
        assert [entry.soname for entry in cache_entries if b"nvidia" in entry.soname] == []
        again = live.attach("2")
        assert again["steps"] != []
        assert_nodes(live.view(tries(node8)), node8, CONTROL, 2)


def test_application_profile_lists_attached_gpus(node8: Installation, tmp_path: Path) -> None:
    """The EGL application profile follows attach and detach; inspect reports nothing missing."""
    bits = {index: 1 << (node8.gpu(index).minor or 0) for index in (2, 3)}
    with started(sleeping(tmp_path, env=asks("void", "all")), node8) as live:
        before = live.seen()
        live.attach("2", "3")
        assert_profile(live, bits[2] | bits[3])
        live.detach("3")
        assert_profile(live, bits[2])
        live.detach("2")
        assert_as_before(live.bundle.root, before.files)


@pytest.mark.parametrize("obstacle", ["pipe", "full"])
def test_changed_application_profile_cannot_prevent_detach(
    obstacle: str, node8: Installation, tmp_path: Path
) -> None:
    """A replaced or unwritable application profile does not prevent detach, which reports it."""
    place = PROFILE.rpartition("/")[0]
    made = sleeping(tmp_path, env=asks("void", "all"))
    config = made.config()
    if obstacle == "full":
        small = {"type": "tmpfs", "source": "tmpfs", "options": ["size=16k"]}
        config["mounts"].append({"destination": place, **small})
    made.write(config)
    with started(made, node8) as live:
        live.attach("2", "3")
        profile = Path(f"/proc/{live.pid}/root{PROFILE}")
        if obstacle == "pipe":
            profile.unlink()
            os.mkfifo(profile)
        else:
            with pytest.raises(OSError, match="No space"):
                (profile.parent / "own").write_bytes(bytes(1 << 16))
        result = live.gpuhook("detach", "--device", "3")
        assert "Error" not in result.stderr, result
        assert (PROFILE in result.stderr) == (obstacle == "full")
        view = live.view(tries(node8))
        assert view.tries[node8.number(3)] == "EPERM"
        assert node8.device(3) not in view.gpus()
        assert node8.device(2) in view.gpus()


def test_application_profile_keeps_gpus_of_other_tools(node8: Installation, tmp_path: Path) -> None:
    """The application profile keeps a GPU of another tool; repair restores a deleted profile."""
    with started(sleeping(tmp_path, env=asks("void", "all")), node8) as live:
        minors = {index: node8.gpu(index).minor or 0 for index in (0, 2, 3)}
        node = Path(f"/proc/{live.pid}/root{node8.device(0)}")
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(MAJOR, minors[0]))
        live.attach("2", "3")
        live.detach("3")
        assert_profile(live, 1 << minors[0] | 1 << minors[2])
        Path(f"/proc/{live.pid}/root{PROFILE}").unlink()
        assert live.report("repair")["steps"] != []
        assert_profile(live, 1 << minors[0] | 1 << minors[2])


def assert_profile(live: Live, mask: int) -> None:
    """Assert that the application profile has these GPUs; inspect and repair find no fault."""
    profile = live.inside("/bin/cat", PROFILE)
    assert f'"EGLVisibleDGPUDevices", {mask:#x}]' in profile.stdout, profile
    assert live.gpuhook("inspect", "--exit-code").rc == 0
    assert live.report("repair")["steps"] == []
