# SPDX-License-Identifier: Apache-2.0
"""Bind mounts of host files that are replaced at the same time."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.apply.live.bind_mounts import Bind, BindMounts
from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.apply.live.hotplug_steps import Live
from gpuhook.apply.live.live_injection import InjectedItems
from gpuhook.containers.warm.process_handle import Process
from gpuhook.kernel import mounts


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Yield a container with an empty root file system, as a runtime makes it."""
    (tmp_path / "root").mkdir()
    script = "mount --make-rprivate / && echo && exec sleep 100"
    started = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.readline()
    try:
        with (
            Process(started.pid) as process,
            Live(process, str(tmp_path / "root"), DeviceRules(None, None), InjectedItems()) as made,
        ):
            yield made
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("is_there", [True, False])
def test_recorded_mount_is_the_mounted_file(
    is_there: bool, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the source is replaced during the mount, the record has the mounted file."""
    source, target = tmp_path / "source", tmp_path / "root" / "target"
    source.write_text("first")
    inode = source.stat().st_ino
    attach = mounts.attach

    def attach_and_replace(*arguments: object) -> None:
        attach(*arguments)  # type: ignore[arg-type] # they are its own
        source.rename(tmp_path / "old")
        if is_there:
            source.write_text("second")

    monkeypatch.setattr(mounts, "attach", attach_and_replace)
    operation = BindMounts([Bind(str(source), "/target", 0, is_directory=False)])
    operation.execute(live)
    mounted = Path(f"/proc/{live.process.pid}/root{target}")
    assert mounted.read_text() == "first"
    assert live.made.mounts == [["/target", os.stat(mounted).st_dev, inode]]
    operation.undo(live)
    assert not mounted.exists()


def test_bind_follows_no_link(tmp_path: Path) -> None:
    """mount(2) follows a link at the target: it would be a file of the host."""
    for name in ("source", "host"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "target").symlink_to("host")
    try:
        with pytest.raises(OSError, match="symbolic link") as raised:
            mounts.bind(str(tmp_path / "source"), str(tmp_path / "target"), 0)
        assert raised.value.errno == errno.ELOOP
        assert (tmp_path / "host").read_text(encoding="utf-8") == "host"
    finally:
        subprocess.run(["umount", tmp_path / "host"], capture_output=True, check=False)
