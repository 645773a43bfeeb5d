# SPDX-License-Identifier: Apache-2.0
"""The memory grants that the guard reads from containers whose processes hide their mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.device_plugin.guard.container_processes import Processes
from gpuhook.request.memory_request import MemoryLimit, mount_path
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.test_live_hostile import BUSYBOX, with_busybox
from tests.waiting import eventually

GIB = 1 << 30
SLEEP = "/busybox sleep 600"


def limited_bundle(place: Path, script: str, hard: int = 4 * GIB) -> Bundle:
    """Return a container with a memory grant that runs a script."""
    made = sleeping(place, args=[*BUSYBOX, script])
    with_busybox(made.root)
    with_busybox(made.root / "tmp")
    config = made.config()
    for mount in config["mounts"]:
        mount["options"] = [word for word in mount["options"] if word != "noexec"]
    made.write(config)
    if hard:
        grant = mount_path(VOCABULARY.memory_prefix, MemoryLimit("GPU-1", hard))
        made.mount(Path("/dev/null"), grant, "rbind", "rw")
    return made


def chrooted_pid(live: Live) -> int:
    """Return the last process of the container once it has called chroot(2)."""
    first, last = live.pid, 0

    def is_chrooted() -> bool:
        nonlocal last
        children = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii")
        last = max([first, *map(int, children.split())])
        return not Path(f"/proc/{last}/root/proc/uptime").exists()

    eventually(is_chrooted)
    return last


@pytest.mark.parametrize(
    ("script", "grants"),
    [
        (f"/busybox chroot /tmp {SLEEP} & wait", {"GPU-1": 4 * GIB}),
        (f"exec /busybox chroot /tmp {SLEEP}", None),
        (f"/busybox cp /busybox /dev/shm/; exec /busybox chroot /dev/shm {SLEEP}", None),
        (f"exec /busybox chroot /tmp /busybox sh -c '{SLEEP}; true'", None),
    ],
    ids=["child", "first", "mount", "all"],
)
def test_grants_are_unknown_if_each_process_hides_its_mounts(
    script: str, grants: dict[str, int] | None, node8: Installation, tmp_path: Path
) -> None:
    """If no process shows the mounts of its container, its grants are unknown, not absent."""
    with started(limited_bundle(tmp_path, script), node8) as live:
        assert Processes().grants(chrooted_pid(live)) == grants


def test_container_without_a_grant_has_no_limit(node8: Installation, tmp_path: Path) -> None:
    """A container without a grant, whose first process shows its mounts, has no limit."""
    made = limited_bundle(tmp_path, f"/busybox chroot /tmp {SLEEP} & wait", 0)
    with started(made, node8) as live:
        assert Processes().grants(live.pid) == {}
        assert Processes().grants(chrooted_pid(live)) == {}


def test_grants_are_unknown_in_an_own_user_namespace(node8: Installation, tmp_path: Path) -> None:
    """In its own user namespace a container can mount what it likes."""
    steps = ["mkdir /tmp/old", "mount --rbind /tmp /tmp", "cd /tmp", "mkdir -p proc old"]
    steps += ["mount --rbind /proc proc", "pivot_root . old", "umount -l /old"]
    script = " && ".join(f"/busybox {step}" if step[:2] != "cd" else step for step in steps)
    script = f"exec /busybox unshare -U -r -m /busybox sh -c '{script}; exec {SLEEP}'"
    with started(limited_bundle(tmp_path, script), node8) as live:
        mounts = Path(f"/proc/{live.pid}/mountinfo")
        eventually(lambda: b"sleep" in Path(f"/proc/{live.pid}/cmdline").read_bytes()[:16])
        assert "gpuhook" not in mounts.read_text(), live.container.errors
        assert Processes().grants(live.pid) is None
