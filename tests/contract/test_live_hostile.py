# SPDX-License-Identifier: Apache-2.0
"""Containers that attack gpuhook while it works on their root reach nothing outside it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.live import Live, prestart, sleeping, started
from tests.contract.runtimes import ENGINES, RuntimeEnvironment, lifecycle, run
from tests.contract.test_hostile import Canary, canary, link
from tests.waiting import eventually

__all__ = ["canary"]

BUSYBOX = ["/busybox", "sh", "-c"]
SLEEP = [*BUSYBOX, "while :; do /busybox sleep 60; done"]
UP = "../" * 12
PLACES = {
    "etc": "",
    "usr/lib/x86_64-linux-gnu": "x86_64-linux-gnu",
    "usr/lib": "",
    "usr/bin": "",
    "etc/ld.so.conf.d": "ld.so.conf.d",
    "etc/ld.so.conf": "ld.so.conf",
    "etc/ld.so.cache": "ld.so.cache",
    "etc/nvidia": "nvidia",
    "run": "",
}
DEEPER = [path for path in PLACES if path not in ("etc", "usr/lib")]


def with_busybox(root: Path) -> Path:
    """Copy a static busybox into a root file system."""
    shutil.copy(roots.musl() / "bin/busybox", root / "busybox")
    return root


@contextmanager
def nothing_outside(canary: Canary, place: Path) -> Iterator[None]:
    """Assert that the block changes no canary file, mount or GPU node of the host."""
    own, loader = host_mounts(place), os.stat("/etc/ld.so.cache").st_mtime_ns
    nodes = host_nodes()
    yield
    canary.assert_unchanged()
    assert host_mounts(place) == own
    assert os.stat("/etc/ld.so.cache").st_mtime_ns == loader
    assert host_nodes() == nodes


def host_nodes() -> dict[str, tuple[int, int]]:
    """Return the GPU nodes in the host's /dev, with inode and time of change."""
    nodes = {path: path.lstat() for path in Path("/dev").glob("nvidia*")}
    return {str(path): (status.st_ino, status.st_ctime_ns) for path, status in nodes.items()}


def host_mounts(place: Path) -> list[str]:
    """Return the host's mounts of this test or of a driver."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(place.parent) in line or "nvidia" in line]


def assert_sound(live: Live, verb: str, *words: str) -> bool:
    """Run a command; return whether it succeeded. If not, it printed an error, no traceback."""
    done = live.gpuhook(verb, "--device", "2", *words)
    assert done.rc in (0, 1), done
    if done.rc:
        errors = done.stderr.splitlines()
        assert any(line.startswith(("Error GH", "left over: ")) for line in errors), done
        assert "Traceback" not in done.stderr
    return done.rc == 0


@pytest.mark.parametrize("form", ["upwards", "by proc"])
@pytest.mark.parametrize("paths", [["etc"], ["usr/lib"], DEEPER], ids=["etc", "lib", "deeper"])
def test_links_out_of_the_root_are_not_followed(
    paths: list[str], form: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The links replace what gpuhook writes to, reads or mounts on."""
    made = sleeping(tmp_path, args=SLEEP)
    with_busybox(made.root)
    start = {"upwards": UP, "by proc": "/proc/1/root"}[form]
    for path in paths:
        link(made.root, path, f"{start}{canary.path}/{PLACES[path]}")
    with nothing_outside(canary, tmp_path), started(made, node8) as live:
        for verb in ("attach", "repair", "detach"):
            words = [] if verb == "repair" else ["--device", "2"]
            done = live.gpuhook(verb, *words)
            assert done.rc in (0, 1), done
            assert "Traceback" not in done.stderr, done
        for path in paths:
            (made.root / path).unlink(missing_ok=True)
        canary.assert_not_copied_to(made.root)


@pytest.mark.parametrize("what", ["fifo", "directory", "huge", "garbage"])
def test_invalid_loader_cache_is_harmless(
    what: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A loader cache of another file type, size or content causes no hang."""
    made = sleeping(tmp_path, args=SLEEP)
    cache = with_busybox(made.root) / "etc/ld.so.cache"
    cache.unlink()
    if what == "fifo":
        os.mkfifo(cache)
    elif what == "directory":
        cache.mkdir()
    elif what == "huge":
        with cache.open("wb") as file:
            file.truncate(1 << 33)
    else:
        cache.write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 4096)
    with nothing_outside(canary, tmp_path), started(made, node8) as live:
        assert_sound(live, "attach")
        assert_sound(live, "detach")


def test_link_in_place_of_a_device_node_is_refused(
    node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The link is not followed, and the error names it."""
    made = sleeping(tmp_path, args=SLEEP)
    with_busybox(made.root)
    with nothing_outside(canary, tmp_path), started(made, node8) as live:
        script = f"/busybox ln -s {UP}{canary.path}/nvidia0 {node8.device(2)}"
        assert live.inside(*BUSYBOX, script).rc == 0
        before = live.seen()
        error = live.refused("GH1750", "attach", "--device", "2")
        assert node8.device(2) in error
        assert live.seen() == before


@pytest.mark.thorough
@pytest.mark.parametrize("pair", [("runc", "host"), ("crun", "v2")])
def test_directories_swapped_with_links(
    pair: tuple[str, str], node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The container replaces directories by links and back while gpuhook works."""
    swaps = [
        ("/etc", f"{UP}{canary.path}"),
        (LIBRARIES, f"{UP}{canary.path}/x86_64-linux-gnu"),
        ("/usr/bin", "/proc/1/root/.."),
        ("/dev/nvidia-uvm", f"{UP}{canary.path}/shadow"),
        ("/etc/ld.so.conf.d", f"{UP}{canary.path}/ld.so.conf.d"),
        ("/etc/ld.so.cache", f"{UP}{canary.path}/ld.so.cache"),
    ]
    steps = "; ".join(
        f"$b mv {path} {path}.aside; $b ln -s {target} {path};"
        f" $b rm {path}; $b mv {path}.aside {path}"
        for path, target in swaps
    )
    script = f"b=/busybox; while :; do {steps}; done 2>/dev/null"
    made = sleeping(tmp_path, args=[*BUSYBOX, script])
    with_busybox(made.root)
    with nothing_outside(canary, tmp_path), started(made, node8, *pair) as live:
        for _ in range(6):
            assert_sound(live, "attach")
            assert_sound(live, "detach", "--force")
        assert live.container.call("kill", "KILL").rc == 0
    canary.assert_not_copied_to(made.root)


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("runc", "etc"),
        ("crun", LIBRARIES.lstrip("/")),
        ("runc", "usr/lib"),
        ("crun", "etc/ld.so.cache"),
    ],
)
def test_prestart_hook_stays_in_the_root(
    path: str, engine: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The hook sees the host's tree around the root, and follows no link to it."""
    made = sleeping(tmp_path, env=asks("2"), args=["/busybox", "true"])
    with_busybox(made.root)
    made.write({**made.config(), "hooks": prestart(node8)})
    link(made.root, path, f"{UP}{canary.path}/{PLACES[path]}")
    with nothing_outside(canary, tmp_path):
        done = run(made, [engine], engine)
        assert "Traceback" not in done.stderr + done.log
        canary.assert_not_copied_to(made.root)


def volume(place: Path) -> Path:
    """Return a directory on the host to mount into a container."""
    made = place / "volume"
    made.mkdir()
    (made / "mine").write_text("as it was", encoding="utf-8")
    return made


@pytest.mark.parametrize("path", ["/etc", LIBRARIES, "/usr/lib", "/dev", "/usr/bin"])
@pytest.mark.parametrize("integration", ["attach", "prestart"])
def test_volumes_are_not_written(
    integration: str, path: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """gpuhook writes nothing into a host directory that the container mounts."""
    made = sleeping(tmp_path, env=asks("2") if integration == "prestart" else (), args=SLEEP)
    with_busybox(made.root)
    host = volume(tmp_path)
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(host / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    config = made.config()
    replaced = ["/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"] if path == "/dev" else []
    config["mounts"] = [m for m in config["mounts"] if m["destination"] not in replaced]
    if integration == "prestart":
        config["hooks"] = prestart(node8)
    made.write(config)
    made.mount(host, path, "rbind", "rw")
    before = roots.listing(host)
    with nothing_outside(canary, tmp_path):
        if integration == "prestart":
            made.write(
                {**made.config(), "process": {**config["process"], "args": ["/busybox", "true"]}}
            )
            done = run(made, ["runc"])
            assert "Traceback" not in done.stderr
        else:
            with started(made, node8) as live:
                seen = live.seen()
                if assert_sound(live, "attach"):
                    assert path in ("/etc", "/usr/bin")  # the libraries have their own directory
                    assert_sound(live, "detach")
                after = live.seen()
                assert (after.nodes, after.mounts, after.rules) == (
                    seen.nodes,
                    seen.mounts,
                    seen.rules,
                )
        added = {
            p for p in roots.listing(host) if p not in before and ("nvidia" in p or "ld.so" in p)
        }
        assert added == set()
        assert (host / "mine").read_text(encoding="utf-8") == "as it was"


@contextmanager
def host_namespace(place: Path) -> Iterator[list[str]]:
    """Yield a prefix for a mount namespace with shared mounts, which plays the host's."""
    (place / "volume").mkdir(exist_ok=True)
    shared = [
        f"mount --bind {at} {at} && mount --make-shared {at}" for at in (place, place / "volume")
    ]
    script = " && ".join([*shared, "exec sleep 600"])
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script])
    try:
        mounts = Path(f"/proc/{process.pid}/mountinfo")
        eventually(lambda: mounts.read_text(encoding="utf-8").count("shared:") >= 2)
        yield ["nsenter", "-t", str(process.pid), "-m"]
    finally:
        process.kill()
        process.wait()


@ENGINES
@pytest.mark.parametrize("what", ["root", "volume", "both"])
@pytest.mark.parametrize("integration", ["attach", "prestart"])
def test_mounts_do_not_propagate_to_the_host(
    integration: str, what: str, engine: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """gpuhook's mounts do not appear on the host if the container's mounts are shared with it."""
    made = sleeping(tmp_path, env=asks("2") if integration == "prestart" else (), args=SLEEP)
    with_busybox(made.root)
    if integration == "prestart":
        made.write({**made.config(), "hooks": prestart(node8)})
    if what != "volume":
        config = made.config()
        config["linux"]["rootfsPropagation"] = "shared"
        made.write(config)
    if what != "root":
        host = volume(tmp_path)
        for source in Path(f"{node8.node.driver_root}{LIBRARIES}").glob("lib*"):
            (host / source.name).write_bytes(b"")
        made.mount(host, LIBRARIES, "rbind", "rw", "rshared")
    unified = "umount /sys/fs/cgroup/unified" if engine == "crun" else "true"
    with host_namespace(tmp_path) as prefix, nothing_outside(canary, tmp_path):
        if Path("/sys/fs/cgroup/unified").is_mount():
            subprocess.run([*prefix, "sh", "-c", unified], check=True)
        mounts = Path(f"/proc/{prefix[2]}/mountinfo")
        before = mounts.read_text(encoding="utf-8")
        with lifecycle(made, [*prefix, engine], "runc", env=node8.on(engine)) as container:
            created = container.create()
            # Refused only if the host would see the mounts: a volume alone is a slave mount.
            if integration == "prestart" and what == "both":
                assert created.rc != 0
                assert engine == "crun" or "rslave" in created.stderr, created
            else:
                assert created.rc == 0, created
                assert container.call("start").rc == 0
            container.around = RuntimeEnvironment(tuple(prefix), {})
            if integration == "attach":
                live = Live(container, made, node8)
                assert assert_sound(live, "attach") or what != "root"
            mounted = [line for line in mounts.read_text().splitlines() if "nvidia" in line]
            mounted_before = [line for line in before.splitlines() if "nvidia" in line]
            assert mounted == mounted_before
