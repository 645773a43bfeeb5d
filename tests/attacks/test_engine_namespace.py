# SPDX-License-Identifier: Apache-2.0
"""Volumes that only the engine's mount namespace has, as in a kind node or a pod with Docker.

Neither our namespace nor that of the host's first process has their file systems mounted; still
they are not the container's own, and nothing is written to them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks
from tests.contract.live import sleeping, started
from tests.contract.runtimes import ENGINES, run
from tests.contract.test_live_hostile import BUSYBOX, with_busybox
from tests.depth import cases

MOUNT = {"tmpfs": "mount -t tmpfs volume", "ext4": "mount -o loop"}
CONF = "etc/ld.so.conf.d"
# The runtime's `create`, called by a process that remains the container's parent.
SHIM = """
import ctypes, os, subprocess, sys, time
if "create" not in sys.argv:
    os.execvp(sys.argv[1], sys.argv[1:])
own, other = os.pipe()
if os.fork():
    os.close(other)
    sys.exit(os.read(own, 1)[0])
ctypes.CDLL(None).prctl(36, 1)
os.write(other, bytes([subprocess.call(sys.argv[1:])]))
os.wait()
"""


def volume_of(kind: str, place: Path) -> tuple[Path, str]:
    """Return the directory of a volume, and the shell command that mounts it."""
    path, image = place / "volume", ""
    path.mkdir()
    if kind == "ext4":
        image = f"{place}/image"
        Path(image).touch()
        os.truncate(image, 1 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
    return path, f"{MOUNT[kind]} {image} {path} && mkdir -p {path}/{CONF} {path}/ld.so.conf.d"


def in_own_namespace(steps: str, *command: object) -> list[str]:
    """Return a command that runs another one in its own mount namespace, after shell steps."""
    return ["unshare", "--mount", "sh", "-c", f'{steps} && "$@"', "sh", *map(str, command)]


@pytest.mark.parametrize(
    ("kind", "is_moved", "known_by"),
    cases(
        [
            ("tmpfs", False, "config.json"),
            ("tmpfs", False, ""),
            ("tmpfs", True, "parent"),
            ("ext4", True, "config.json"),
        ],
        [("tmpfs", True, "parent"), ("tmpfs", False, "")],
    ),
)
def test_attach_writes_to_no_volume_of_the_engine(
    kind: str, is_moved: bool, known_by: str, node8: Installation, tmp_path: Path
) -> None:
    """The container may rename directories above its volume: config.json then has another path.

    The engine may have removed the bundle, with no process left in its namespace.
    """
    volume, steps = volume_of(kind, tmp_path)
    script = "while :; do /busybox sleep 60; done"
    if is_moved:
        script = (
            f"/busybox mv /a /b && /busybox rm -rf /{CONF} && "
            f"/busybox ln -s /b/data/ld.so.conf.d /{CONF} && {script}"
        )
    made = sleeping(tmp_path, args=[*BUSYBOX, script])
    with_busybox(made.root)
    made.mount(volume, "/a/data" if is_moved else "/etc", "rbind", "rw", "rprivate")
    shim = [sys.executable, "-c", SHIM] if known_by == "parent" else []
    command = in_own_namespace(steps, *shim, "runc")
    with started(made, node8, "runc", "host", *command) as live:
        shown = Path(f"/proc/{live.pid}/root", "b/data" if is_moved else "etc")
        before = sorted(shown.rglob("*"))
        assert before
        assert not list(volume.iterdir())
        if not known_by:
            made.file.unlink()
        done = live.gpuhook("attach", "--device", "2")
        assert "Traceback" not in done.stderr
        assert sorted(shown.rglob("*")) == before, done
        assert known_by or node8.device(2).rpartition("/")[2] in live.nodes(), done


@ENGINES
def test_hook_writes_to_no_volume_of_the_engine(
    engine: str, node8: Installation, tmp_path: Path
) -> None:
    """A tmpfs of the container is at a path that a volume, a tmpfs of the engine, then covers."""
    volume, steps = volume_of("tmpfs", tmp_path)
    made = bundle(tmp_path / "b", roots.copy("debian", tmp_path / "root"), ["/probe"], asks("0"))
    config = made.config()
    config["mounts"].append({"destination": f"/{CONF}", "type": "tmpfs", "source": "tmpfs"})
    made.write(config)
    made.mount(volume, "/etc", "rbind", "rw", "rprivate")
    seen = tmp_path / "seen"
    # The runtime makes empty files to mount the driver's on.
    after = f"find {volume} -type f -size +0 >{seen}; exit $rc"
    watched = ["sh", "-c", f'"$@"; rc=$?; {after}', "sh", node8.runtime]
    done = run(made, in_own_namespace(steps, *watched), engine, env=node8.on(engine))
    assert "Traceback" not in done.stderr + done.log
    assert seen.read_text(encoding="utf-8") == "", done
