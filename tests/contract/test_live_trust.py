# SPDX-License-Identifier: Apache-2.0
"""Commands on running containers trust neither files of users nor the container itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.contract import roots
from tests.contract.bundles import CGROUP, device, rule
from tests.contract.installation import CONTROL, LIBRARIES, Installation, asks
from tests.contract.live import Live, prestart, sleeping, started, wrapped
from tests.contract.runtimes import BOTH
from tests.contract.test_detach import tries
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_live_failures import targets, unchanged
from tests.contract.test_live_hostile import volume
from tests.waiting import eventually

USER = 12345
EVERYTHING = {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}


def device_access(live: Live, index: int = 2) -> str:
    """Return what a container gets if it makes the node of a GPU and opens it."""
    return live.view(tries(live.installation)).tries[live.installation.number(index)].split()[-1]


def script(live: Live, text: str) -> str:
    """Run a script in the container, which must succeed, and return its output."""
    done = live.inside("/bin/sh", "-c", text)
    assert done.rc == 0, done
    return done.stdout


def as_host(live: Live, text: str) -> str:
    """Run a script as the host's root, in the namespaces of the container's runtime."""
    command = [*live.container.around.prefix, "sh", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def owned_by_user(path: Path) -> Path:
    """Change the owner of a tree to a user, and return the tree."""
    subprocess.run(["chown", "-R", "--no-dereference", f"{USER}:{USER}", str(path)], check=True)
    return path


@contextmanager
def users_process() -> Iterator[int]:
    """Yield the pid of a process in namespaces of a user."""
    as_user = ["--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sleep", "60"]
    process = subprocess.Popen(["setpriv", *as_user, *apart])
    own, host = Path(f"/proc/{process.pid}/ns/mnt"), Path("/proc/self/ns/mnt").readlink()
    try:
        eventually(lambda: own.readlink() != host)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_state_and_config_of_a_user_are_refused(node8: Installation, tmp_path: Path) -> None:
    """Root uses no container state and no config.json that belong to a user."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, node8) as live, users_process() as pid:
        home = tmp_path / "home"
        (home / "crun" / "theirs").mkdir(parents=True)
        shutil.copy(made.file, home / "config.json")
        state = {"pid": pid, "bundle": str(home), "rootfs": str(home)}
        (home / "crun/theirs/status").write_text(json.dumps(state), encoding="utf-8")
        where = ["--state-root", str(owned_by_user(home) / "crun")]
        assert f"user {USER}" in live.refused("GH1756", "repair", *where, name="theirs")
        live.refused("GH1756", "attach", "--device", "3", *where, name=str(pid))
        done = live.gpuhook("repair", *where, name="--all")
        assert "theirs" not in done.stdout + done.stderr

        owned_by_user(made.file)
        with unchanged(live):
            assert str(made.file) in live.refused("GH1755", "repair")
            live.refused("GH1755", "detach", "--device", "2")


def test_linked_state_is_no_second_container(node8: Installation, tmp_path: Path) -> None:
    """A user's link to the state of a container is refused."""
    with wrapped(sleeping(tmp_path, env=asks("2")), node8) as live:
        live.detach("2")
        links = tmp_path / "links"
        links.mkdir()
        for name in (live.id, "mine"):
            (links / name).symlink_to(live.bundle.path / "state" / live.id)
        where = ["--state-root", str(owned_by_user(links))]
        with unchanged(live):
            live.gpuhook("repair", *where, name="--all")
            live.refused("GH1739", "attach", "--device", "2", *where, name="mine")
        assert device_access(live) == "EPERM"
        live.report("attach", "--device", "3", *where)


def test_carriage_return_in_a_mount_point(node8: Installation, tmp_path: Path) -> None:
    """Text after a carriage return in mountinfo is not a line."""
    made = sleeping(tmp_path)
    host = volume(tmp_path)
    made.mount(host, "/etc/ld.so.conf.d", "rbind", "rw")
    with started(made, node8) as live:
        mounts = Path(f"/proc/{live.pid}/mountinfo")
        lines = [line.split() for line in mounts.read_text().split("\n")[:-1]]
        (number,) = [line[0] for line in lines if line[4] == "/etc/ld.so.conf.d"]
        before = roots.listing(host)
        mounting = (
            f"import ctypes, os\nns = os.open('/proc/{live.pid}/ns/mnt', os.O_RDONLY)\n"
            "libc = ctypes.CDLL(None)\nassert libc.setns(ns, 0) == 0\n"
            f"os.mkdir('/q\\r{number}')\n"
            f"assert libc.mount(b'none', b'/q\\r{number}', b'tmpfs', 0, None) == 0\n"
        )
        subprocess.run(["python3", "-c", mounting], check=True)
        assert b"\r" in mounts.read_bytes()
        live.attach("2")
        assert_nodes(live.view(tries(node8)), node8, CONTROL, 2)
        live.detach("2")
        assert roots.listing(host) == before


def is_asleep(pid: int) -> bool:
    """Return whether the shell's child sleep(1) is asleep."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
        fields = Path(f"/proc/{child}/stat").read_text("ascii").split()
        return fields[1:3] == ["(sleep)", "S"]
    return False


def test_hidden_mounts_are_detached(apart: Installation, tmp_path: Path) -> None:
    """A container that hides the driver's libraries from a detach gets no GPU from a repair."""
    made = sleeping(tmp_path, env=asks("2"), hooks=prestart(apart))
    with started(made, apart) as live:
        place = Path(f"/proc/{live.pid}/root{LIBRARIES}")
        eventually(lambda: is_asleep(live.pid))  # its programs have loaded what they need
        place.rename(place.with_name("hidden"))
        live.detach("2")
        place.with_name("hidden").rename(place)
        assert not [target for target in live.view().mounts if "libcuda" in target]
        os.mknod(place.parents[2] / apart.device(2).lstrip("/"), 0o20666, os.makedev(195, 3))
        live.gpuhook("repair", name="--all")
        assert device_access(live) == "EPERM"


@BOTH
def test_file_in_place_of_a_node_does_not_keep_the_device(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A detach denies the device, and keeps the container's file or directory."""
    made = sleeping(tmp_path, env=asks("2,3"))
    with wrapped(made, node8, engine, cgroup) as live:
        one, other = node8.device(2), node8.device(3)
        script(live, f"rm {one} {other}; mkdir -p {one}/x; echo precious >{other}")
        live.detach("2,3")
        assert [device_access(live, index) for index in (2, 3)] == ["EPERM", "EPERM"]
        assert script(live, f"ls {one}; cat {other}") == "x\nprecious\n"


@BOTH
def test_detach_without_a_ledger_entry(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """A detach denies the device even if the ledger has no entry of the container."""
    with started(sleeping(tmp_path), apart, engine, cgroup) as live:
        live.attach("2")
        shutil.rmtree(apart.state / "containers")
        assert live.detach("2")["steps"] != []
        assert device_access(live) == "EPERM"
        live.attach("2")
        assert_nodes(live.view(tries(apart)), apart, CONTROL, 2)


def test_detach_if_all_devices_are_allowed(node8: Installation, tmp_path: Path) -> None:
    """A repair does not attach it again; an attach does."""
    made = sleeping(tmp_path, env=asks("2"), linux=EVERYTHING)
    with wrapped(made, node8) as live:
        live.detach("2")
        assert device_access(live) == "EPERM"
        assert live.report("repair")["steps"] == []
        assert device_access(live) == "EPERM"
        live.attach("2")
        assert_nodes(live.view(), node8, CONTROL, 2)


def test_repair_keeps_a_rule_that_denies(node8: Installation, tmp_path: Path) -> None:
    """A repair does not allow what config.json denies, although the node exists."""
    major, minor = map(int, node8.number(2).split(":"))
    refused = {**rule(major, minor), "allow": False}
    linux = {
        "devices": [device(node8.device(2), major, minor)],
        "resources": {"devices": [refused]},
    }
    with started(sleeping(tmp_path, linux=linux), node8) as live:
        assert live.report("repair")["steps"] == []
        assert device_access(live) == "EPERM"


@BOTH
def test_detach_if_the_first_process_is_in_a_sub_cgroup(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """The device is denied in the container's cgroup, not in the one below it."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, node8, engine, cgroup) as live:
        place = "/sys/fs/cgroup" + ("/devices" if cgroup == "host" else "")
        place += made.config()["linux"]["cgroupsPath"]
        as_host(live, f"mkdir {place}/sub; echo {live.pid} >{place}/sub/cgroup.procs")
        live.detach("2")
        assert device_access(live) == "EPERM"
        live.attach("2")
        assert device_access(live) != "EPERM"


def test_detach_without_an_own_cgroup(node8: Installation, tmp_path: Path) -> None:
    """The rules of a cgroup that other processes share do not change."""
    place = f"/sys/fs/cgroup/{CGROUP}/{uuid4().hex[:12]}"
    joined = f"mkdir -p {place}; echo $$ >{place}/cgroup.procs"
    runtime = ["sh", "-c", f'{joined}; exec crun --cgroup-manager=disabled "$@"', "sh"]
    made = sleeping(tmp_path)
    config = made.config()
    del config["linux"]["cgroupsPath"]
    made.write(config)
    node = tmp_path / "node"
    os.mknod(node, 0o20666, os.makedev(195, 3))
    opening = f"{joined}; (: <{node}) 2>&1 || :"
    with started(made, node8, "crun", "v2", *runtime) as live:
        before = as_host(live, opening)
        assert "No such device" in before
        live.attach("2")
        done = live.gpuhook("detach", "--device", "2")
        assert done.rc == 1
        assert "left over: device rules: the container does not have its own cgroup" in done.stderr
        assert as_host(live, opening) == before
    as_host(live, f"for try in $(seq 50); do rmdir {place} && exit; sleep 0.1; done 2>&-; exit 1")


def test_container_below_the_scope_of_another(node8: Installation, tmp_path: Path) -> None:
    """Attach and detach of the inner container do not change the outer one's rules."""
    scope = f"/{CGROUP}/docker-{uuid4().hex[:12]}.scope"
    below = {"cgroupsPath": f"{scope}/docker/inner"}
    for name in ("outer", "inner"):
        (tmp_path / name).mkdir()
    outer = sleeping(tmp_path / "outer", env=asks("2"), linux={"cgroupsPath": scope})
    inner = sleeping(tmp_path / "inner", env=asks("2"), linux=below)
    with wrapped(outer, node8, "crun", "v2") as around:
        payload = f"/sys/fs/cgroup{scope}/payload"
        as_host(around, f"mkdir {payload}; echo {around.pid} >{payload}/cgroup.procs")
        with wrapped(inner, node8, "crun", "v2") as live:
            rules = around.rules()
            live.refused("GH1702", "attach", "--device", "5")
            live.detach("2")
            assert device_access(live) == "EPERM"
            assert around.rules() == rules


@pytest.fixture
def sharing(node8: Installation, tmp_path: Path) -> Installation:
    """Return a node with two devices that share the node of a GPU, as MIG instances do."""
    mine = node8.apart(tmp_path / "node")
    spec = yaml.safe_load(mine.spec.read_text(encoding="utf-8"))
    nodes = {d["name"]: d["containerEdits"]["deviceNodes"] for d in spec["devices"]}
    for name, other in (("2:0", "5"), ("2:1", "6")):
        edits = {"deviceNodes": nodes["2"] + nodes[other]}
        spec["devices"].append({"name": name, "containerEdits": edits})
    mine.spec.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return mine


def test_detach_keeps_shared_nodes(sharing: Installation, tmp_path: Path) -> None:
    """A node remains while another device or replica of the container needs it."""
    made = sleeping(tmp_path, env=asks("2:0,2:1"))
    with wrapped(made, sharing) as live:
        live.detach("2:0")
        assert_nodes(live.view(tries(sharing)), sharing, CONTROL, 2, 6)
        live.detach("2:1")
        live.attach("1::0,1::1")
        live.detach("1::0")
        assert_nodes(live.view(tries(sharing)), sharing, CONTROL, 1)
        assert [one["replicas"] for one in sharing.holders()] == [["1::1"]]
        live.detach("1::1")
        assert device_access(live, 1) == "EPERM"


@pytest.mark.parametrize("end", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_interrupted_attach_is_undone(
    end: Callable[[subprocess.Popen[bytes]], None], node8: Installation, tmp_path: Path
) -> None:
    """SIGTERM undoes the attach; after SIGKILL a detach does."""
    with started(sleeping(tmp_path), node8) as live:
        before = live.seen()
        mounts = Path(f"/proc/{live.pid}/mountinfo")
        slow = "inject=move_mount:delay_exit=30000"
        via = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", slow]
        command = live.command("attach", "--device", "2", via=via)
        attaching = subprocess.Popen(command, env=live.env, stderr=subprocess.DEVNULL)
        eventually(lambda: "libcuda" in mounts.read_text())
        end(attaching)
        assert attaching.wait() != 0
        if end is subprocess.Popen.kill:
            live.detach("2")
        after = live.seen()
        assert replace(after, mounts=(), entry="") == replace(before, mounts=(), entry="")
        assert targets(after) == targets(before)
