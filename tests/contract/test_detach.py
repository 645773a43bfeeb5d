# SPDX-License-Identifier: Apache-2.0
"""A GPU taken from a running container, whichever tool assigned it, and what is reported."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries
from tests.contract import roots
from tests.contract.installation import CONTROL, LIBRARIES, MAJOR, Installation, asks
from tests.contract.live import Live, Said, openable, opening, sleeping, started, wrapped
from tests.contract.runtimes import BOTH
from tests.contract.test_attach import assert_as_before
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_prestart import PROFILE
from tests.contract.views import questions
from tests.waiting import eventually

HOLD = "exec 3<{}; while :; do sleep 60; done"


def tries(installation: Installation) -> list[str]:
    """Return the questions for the probe: every GPU of the node."""
    return questions(tries=[installation.number(index) for index in range(8)])


@BOTH
def test_granted_at_creation(engine: str, cgroup: str, node8: Installation, tmp_path: Path) -> None:
    """What the wrapper gave is denied and hidden, and comes back by attach; the rest stays."""
    made = sleeping(tmp_path, env=asks("2,3"))
    with wrapped(made, node8, engine, cgroup) as live:
        before, rules = live.seen(), live.rules()
        away = live.detach("2")
        assert any("config.json" in note for note in away["notes"]), away
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


def test_without_config(node8: Installation, tmp_path: Path) -> None:
    """What came with the creation remains, also if its record is unreadable."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, node8) as live:
        live.detach("2")
        live.attach("2")
        config = live.bundle.file.rename(tmp_path / "config.json")
        live.detach("2")
        config.rename(live.bundle.file)  # runc's exec needs it
        assert set(live.view().gpus()) == CONTROL


@BOTH
def test_in_use(engine: str, cgroup: str, node8: Installation, tmp_path: Path) -> None:
    """A device that a process has open remains; --force refuses the next open."""
    mine = openable(node8, tmp_path / "node")
    device = mine.device(2)
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/sh", "-c", HOLD.format(device)])
    with wrapped(made, mine, engine, cgroup) as live:
        held = Path(f"/proc/{live.pid}/fd/3")
        eventually(held.exists)
        before = live.seen()
        said = live.refused("GH1753", "detach", "--device", "2")
        assert f"process {live.pid} (sh, open)" in said
        assert live.seen() == before
        done = live.report("detach", "--device", "2", "--force")
        assert any(f"process {live.pid} (sh, open)" in note for note in done["notes"]), done
        assert held.exists()
        assert device not in live.view().gpus()
        opened = live.inside("/bin/sh", "-c", f": <{device}")
        assert opened.rc != 0
        live.attach("2")
        assert live.inside("/bin/sh", "-c", f": <{device}").rc == 0


@BOTH
def test_next_open_fails(engine: str, cgroup: str, node8: Installation, tmp_path: Path) -> None:
    """A process that opens a device again and again: yes from attach on, no from detach on."""
    mine = openable(node8, tmp_path / "node")
    made = sleeping(tmp_path, args=opening(mine.device(2)))
    with started(made, mine, engine, cgroup) as live:
        said = Said(live)
        said.becomes("no")
        live.attach("2")
        said.becomes("yes")
        live.report("detach", "--device", "2", "--force")
        said.becomes("no")
        assert said.pids() == {"1"}


@pytest.mark.parametrize("cgroup", ["host", "v2"])
def test_none_granted(cgroup: str, node8: Installation, tmp_path: Path) -> None:
    """Of a container without GPUs nothing is taken, and an unknown device is a fault."""
    with started(sleeping(tmp_path), node8, "runc", cgroup) as live:
        before = live.seen()
        assert live.detach("2")["steps"] == []
        live.refused("GH1759", "detach", "--device", "17")
        assert live.seen() == before


def test_changed_meanwhile(node8: Installation, tmp_path: Path) -> None:
    """What the container's processes made of its files is left to them."""
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
        done = live.inside("/bin/sh", "-ec", "; ".join(script))
        assert done.rc == 0, done
        live.detach("2")
        mine = roots.listing(made.root)
        changed = {path for path in mine.keys() | files.keys() if mine.get(path) != files.get(path)}
        assert changed - {
            "etc/ld.so.cache",
            "var/cache/ldconfig/aux-cache",
            "var/cache/ldconfig",
        } == {
            "usr/lib/x86_64-linux-gnu/libcuda.so",
            "etc/ld.so.conf.d/00-gpuhook.conf",
        }
        held = ld_cache_entries.parse((made.root / "etc/ld.so.cache").read_bytes())
        assert [entry.soname for entry in held if b"nvidia" in entry.soname] == []
        again = live.attach("2")
        assert again["steps"] != []
        assert_nodes(live.view(tries(node8)), node8, CONTROL, 2)


def test_profile(node8: Installation, tmp_path: Path) -> None:
    """What EGL may see follows the GPUs, and nothing is said to be missing meanwhile."""
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
def test_profile_in_the_way(obstacle: str, node8: Installation, tmp_path: Path) -> None:
    """A container cannot keep its GPU by changing the profile: the rest is left, and reported."""
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
        done = live.gpuhook("detach", "--device", "3")
        assert "Error" not in done.stderr, done
        assert (PROFILE in done.stderr) == (obstacle == "full")
        view = live.view(tries(node8))
        assert view.tries[node8.number(3)] == "EPERM"
        assert node8.device(3) not in view.gpus()
        assert node8.device(2) in view.gpus()


def test_profile_of_others(node8: Installation, tmp_path: Path) -> None:
    """A GPU from another tool stays visible to EGL; a lost profile comes back."""
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
    """Assert that the application profile has these GPUs, and that nothing is missing."""
    profile = live.inside("/bin/cat", PROFILE)
    assert f'"EGLVisibleDGPUDevices", {mask:#x}]' in profile.stdout, profile
    assert live.gpuhook("inspect", "--exit-code").rc == 0
    assert live.report("repair")["steps"] == []
