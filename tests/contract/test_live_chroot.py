# SPDX-License-Identifier: Apache-2.0
"""Containers whose first process calls chroot(2), so that /proc/PID/root is another directory."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract import compiled, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import Bundle
from tests.contract.installation import CONTROL, PYTHON, Installation, asks
from tests.contract.live import Live, sleeping, started, wrapped
from tests.contract.runtimes import BOTH, ENGINES, lifecycle, run_command
from tests.contract.test_attach import assert_as_before
from tests.contract.test_doctor import results, results_of
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_live_hostile import BUSYBOX, with_busybox
from tests.contract.test_live_trust import USER, owned_by_user
from tests.contract.test_repair import reset
from tests.contract.test_user_namespace import let_through
from tests.waiting import eventually

READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def volume(place: Path) -> Path:
    """Return a directory on the host with a root file system in it, for a read-only mount."""
    host = place / "host"
    for name in ("dev", "etc", "usr/lib"):
        (host / name).mkdir(parents=True)
    (host / "etc/ld.so.conf").write_text("# the host's\n", encoding="utf-8")
    return with_busybox(host)


def chrooted(made: Bundle, source: Path, below: str = "") -> Bundle:
    """Make the first process change its root to a read-only volume, or to a directory in it."""
    with_busybox(made.root)
    has_own = (source / below.lstrip("/") / "busybox").exists()
    shell = ["/busybox", "sh"] if has_own else ["/bin/sh"]
    wait = "while :; do /busybox sleep 60; done" if has_own else "while :; do sleep 60; done"
    config = made.config()
    config["process"]["args"] = ["/busybox", "chroot", f"/vol{below}", *shell, "-c", wait]
    made.write(config)
    made.mount(source, "/vol", *READ_ONLY)
    return made


@contextmanager
def unchanged(live: Live, host: Path, name: str = "busybox") -> Iterator[None]:
    """Assert that the process has another root directory, and that the block changes nothing.

    That directory has `name` and no /proc.
    """
    process_root = Path(f"/proc/{live.pid}/root")
    eventually(
        lambda: (process_root / name).exists() and not (process_root / "proc/uptime").exists()
    )

    def state() -> tuple[object, ...]:
        files = roots.listing(host), roots.listing(live.bundle.root)
        return *files, live.rules(), live.entry(), live.mounts()

    before = state()
    yield
    assert state() == before


def assert_refused(live: Live, *verbs: str) -> None:
    """Assert that no command uses the root directory of the process as the container's."""
    for verb in (*verbs, "attach", "detach", "inspect"):
        device = ["--device", "2"] if verb in ("attach", "detach") else []
        error = live.refused("GH1747", verb, *device)
        assert str(live.pid) in error
        assert "chroot(2)" in error
        assert "nothing was changed" not in error
    live.refused("GH1747", "attach", "--device", "2", "--dry-run")
    live.refused("GH1747", "detach", "--device", "2", "--force")


@BOTH
def test_volume_as_root_is_refused(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A container without GPUs whose process has a volume as its root: nothing is written to it."""
    host = volume(tmp_path)
    made = chrooted(sleeping(tmp_path), host)
    with started(made, node8, engine, cgroup) as live, unchanged(live, host):
        assert_refused(live)
        done = live.gpuhook("repair", name="--all")
        assert live.id not in done.stdout + done.stderr  # it was granted nothing
        assert results_of(live, results(live), "failed", "warning") == []


@BOTH
def test_repair_all_reports_and_continues(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The changed root is reported for its container; the other container is repaired."""
    host = volume(tmp_path)
    made = chrooted(sleeping(tmp_path / "one", env=asks("2")), host)
    other = sleeping(tmp_path / "two", env=asks("3"))
    with (
        wrapped(made, apart, engine, cgroup) as live,
        wrapped(other, apart, engine, cgroup) as sound,
        unchanged(live, host),
    ):
        assert_refused(live, "repair")
        reset(sound)
        done = live.gpuhook("repair", name="--all")
        assert done.rc == 1, done
        assert f"Error GH1747: {live.id}:" in done.stderr
        assert f"{sound.id}: done" in done.stdout
        assert live.id not in done.stdout
        (finding,) = results_of(live, results(live), "failed", "warning")
        assert finding["id"] == "containers.state"
        assert str(live.pid) in finding["said"]


@BOTH
def test_driver_root_keeps_its_nodes_on_detach(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A detach removes no device node from the host's driver root."""
    host = with_busybox(volume(tmp_path))
    os.mknod(f"{host}{node8.device(2)}", 0o20666, os.makedev(195, node8.gpu(2).minor or 0))
    made = chrooted(sleeping(tmp_path, env=asks("2")), host)
    with (
        wrapped(made, node8, engine, cgroup) as live,
        unchanged(live, host),
    ):
        assert_refused(live, "detach", "repair")
    assert Path(f"{host}{node8.device(2)}").is_char_device()


@BOTH
def test_root_of_another_container_is_refused(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """By a read-only mount of the engine's directory, no container reaches another one's root."""
    victim = sleeping(tmp_path / "victim")
    below = f"/{victim.root.name}"
    made = chrooted(sleeping(tmp_path / "own"), tmp_path / "victim", below)
    with (
        started(victim, node8, engine, cgroup) as other,
        started(made, node8, engine, cgroup) as live,
        unchanged(live, tmp_path / "victim", "bin/sh"),
    ):
        before = other.seen()
        assert_refused(live)
        assert other.seen() == before


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_own_directory_as_root_is_refused(place: str, node8: Installation, tmp_path: Path) -> None:
    """A directory or a mount of the container itself is not its root."""
    made = sleeping(tmp_path)
    with_busybox(made.root)
    script = f"/busybox cp /busybox {place}/; exec /busybox chroot {place} /busybox sleep 600"
    config = made.config()
    for mount in config["mounts"]:
        mount["options"] = [word for word in mount["options"] if word != "noexec"]
    config["process"]["args"] = [*BUSYBOX, script]
    made.write(config)
    with started(made, node8) as live, unchanged(live, made.root):
        assert_refused(live)


@pytest.mark.thorough
@pytest.mark.parametrize("pair", [("runc", "host"), ("crun", "v2")])
def test_root_changed_in_a_loop(pair: tuple[str, str], node8: Installation, tmp_path: Path) -> None:
    """A process that changes its root repeatedly is refused, or attached in its true root."""
    host = volume(tmp_path)
    made = sleeping(tmp_path, args=["/swaproot", "/vol"])
    shutil.copy(compiled.swaproot(), made.root / "swaproot")
    made.mount(host, "/vol", *READ_ONLY)
    before = roots.listing(host)
    with started(made, node8, *pair) as live:
        for _ in range(10):
            for verb in ("attach", "detach", "inspect"):
                words = [] if verb == "inspect" else ["--device", "2"]
                done = live.gpuhook(verb, *words)
                assert done.rc == 0 or "Error GH1747:" in done.stderr, done
        assert live.container.call("kill", "KILL").rc == 0
    assert roots.listing(host) == before


@BOTH
def test_chroot_of_a_child_process_is_allowed(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """Only the root of the first process matters: attach and detach work."""
    host = volume(tmp_path)
    made = chrooted(sleeping(tmp_path), host)
    config = made.config()
    config["process"]["args"] = [*BUSYBOX, '"$@" & wait', "sh", *config["process"]["args"]]
    made.write(config)
    (made.root / "vol").mkdir()
    files = roots.listing(made.root)
    with started(made, node8, engine, cgroup) as live:
        live.attach("2")
        assert_nodes(live.view(), node8, CONTROL, 2)
        live.detach("2")
    assert_as_before(made.root, files)


@ENGINES
def test_attach_without_pivot_root(engine: str, node8: Installation, tmp_path: Path) -> None:
    """A runtime that moves the root file system over "/" gives all processes the same root."""
    made = sleeping(tmp_path)
    with lifecycle(made, [engine], engine, env=node8.on(engine)) as container:
        container.start("--no-pivot")
        live = Live(container, made, node8)
        live.attach("2")
        assert_nodes(live.view(), node8, CONTROL, 2)
        live.detach("2")


def test_root_of_a_container_of_a_user(tmp_path: Path) -> None:
    """A user without privileges on the host can read the root of their own container."""
    root = volume(tmp_path)
    (root / "old").mkdir()
    let_through(owned_by_user(root) / "any")
    place = shlex.quote(str(root))
    steps = [f"mount --rbind {place} {place}", f"cd {place}", "pivot_root . old"]
    script = " && ".join([*steps, "exec /busybox sleep 600"])
    as_user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    command = [*as_user, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    with subprocess.Popen(command) as process:
        try:
            words = Path(f"/proc/{process.pid}/cmdline")
            eventually(lambda: words.read_bytes().startswith(b"/busybox"))
            program = (
                "import sys\n"
                "from gpuhook.apply.live.live_root import LiveRoot\n"
                "from gpuhook.containers.warm.process_handle import Process\n"
                "root = LiveRoot(Process(int(sys.argv[1])))\n"
                "print(root.read('/etc/ld.so.conf', 100))\n"
                "print('/old' in [mount.target for mount in root.mounts()])\n"
            )
            done = subprocess.run(
                [*as_user, PYTHON, "-B", "-c", program, str(process.pid)],
                capture_output=True,
                text=True,
                check=False,
                cwd=CHECKOUT,
            )
        finally:
            process.kill()
    assert done.stdout == 'b"# the host\'s\\n"\nTrue\n', done


def test_host_root_is_recognized_below_a_chroot(tmp_path: Path) -> None:
    """The root of process 1 is the host's, even if gpuhook itself has another root directory."""
    (tmp_path / "proc").mkdir()
    program = (
        "import os, sys\n"
        "from gpuhook.apply.rootfs.root_directory import Root\n"
        "from gpuhook.errors import GpuhookError\n"
        "import gpuhook.errors.kinds, gpuhook.errors.messages\n"
        "host = os.open('/', os.O_PATH | os.O_DIRECTORY)\n"
        "os.chroot(sys.argv[1])\n"
        "try: Root('/volume', host)\n"
        "except GpuhookError as error: print(error.code)\n"
    )
    script = 'mount -t proc proc "$1/proc" && "$2" -c "$3" "$1"'
    namespaces = ["unshare", "--mount", "--pid", "--fork"]
    command = [*namespaces, "sh", "-c", script, "sh", str(tmp_path), sys.executable, program]
    done = run_command(command)
    assert done.stdout == "GH1304\n", done


def test_root_in_a_new_user_namespace_is_refused(node8: Installation, tmp_path: Path) -> None:
    """A first process that makes a user namespace can choose its root: GH1748."""
    host = volume(tmp_path)
    made = sleeping(tmp_path)
    with_busybox(made.root)
    made.mount(host, "/vol", "rw", "rbind", "rprivate")
    inner = "mount --rbind /vol /vol && cd /vol && mkdir -p old proc && /busybox pivot_root . old"
    wait = "while :; do /busybox sleep 60; done"
    script = f"/busybox {inner} && {wait}"
    config = made.config()
    config["process"]["args"] = [
        "/busybox",
        "unshare",
        "-U",
        "-r",
        "-m",
        "/busybox",
        "sh",
        "-c",
        script,
    ]
    made.write(config)
    with started(made, node8) as live:
        eventually(lambda: Path(f"/proc/{live.pid}/root/old").is_dir())
        before = roots.listing(host)
        for verb in ("attach", "detach"):
            live.refused("GH1748", verb, "--device", "2")
        live.refused("GH1748", "repair")
        live.refused("GH1748", "inspect")
        assert roots.listing(host) == before


@BOTH
def test_user_namespace_without_map_is_refused(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A namespace that maps no user gets GH1748 too; doctor reports nothing about it."""
    made = sleeping(tmp_path)
    with_busybox(made.root)
    config = made.config()
    config["process"]["args"] = ["/busybox", "unshare", "-U", "-m", "/busybox", "sleep", "600"]
    made.write(config)
    with started(made, node8, engine, cgroup) as live:
        own = Path("/proc/self/ns/user").readlink()
        eventually(lambda: Path(f"/proc/{live.pid}/ns/user").readlink() != own)
        for verb in ("attach", "detach"):
            live.refused("GH1748", verb, "--device", "2")
        live.refused("GH1748", "inspect")
        assert results_of(live, results(live), "failed", "warning") == []
