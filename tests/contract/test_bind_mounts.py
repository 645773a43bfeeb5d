# SPDX-License-Identifier: Apache-2.0
"""Bind mounts out of the host's files, while these are replaced."""

from __future__ import annotations

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
    """Give a container of an empty root, as it is while a runtime makes it."""
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
def test_source_replaced(
    is_there: bool, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted is what is mounted, whatever has the source's name by then, if anything."""
    source, target = tmp_path / "source", tmp_path / "root" / "target"
    source.write_text("first")
    inode = source.stat().st_ino
    attach = mounts.attach

    def replaced(*arguments: object) -> None:
        attach(*arguments)  # type: ignore[arg-type] # they are its own
        source.rename(tmp_path / "old")
        if is_there:
            source.write_text("second")

    monkeypatch.setattr(mounts, "attach", replaced)
    operation = BindMounts([Bind(str(source), "/target", 0, is_directory=False)])
    operation.execute(live)
    there = Path(f"/proc/{live.process.pid}/root{target}")
    assert there.read_text() == "first"
    assert live.made.mounts == [["/target", os.stat(there).st_dev, inode]]
    operation.undo(live)
    assert not there.exists()
