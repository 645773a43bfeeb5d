# SPDX-License-Identifier: Apache-2.0
"""What makes the device plugin take a turn: files that change, with and without inotify."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gpuhook.device_plugin.change_watch import ChangeWatch
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.kubelet import directory_watch
from gpuhook.device_plugin.triggers import Reason, Triggers


def run(
    path: Path,
    scenario: Callable[[Triggers], Awaitable[None]],
    seconds: float = 3600.0,
    polled: Callable[[], None] = lambda: None,
) -> None:
    """Run `scenario` beside a lookout for the configuration at `path`."""

    async def ran() -> None:
        triggers = Triggers()
        lookout = ChangeWatch(
            Launch(ConfigSource(file=str(path)), inventory="t4"), triggers, seconds
        )
        lookout.start(polled)
        try:
            await asyncio.wait_for(scenario(triggers), 30)
        finally:
            lookout.stop()

    asyncio.run(ran())


def test_file_that_a_link_is_set_to_is_watched(tmp_path: Path) -> None:
    """The configuration is a link, which a configuration manager sets to another directory."""
    config = tmp_path / "config.yaml"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text("")
    config.symlink_to("first/config")

    async def scenario(triggers: Triggers) -> None:
        new = tmp_path / "new"
        new.symlink_to("second/config")
        new.rename(config)
        assert await triggers.next() == {Reason.CONFIGURATION}
        (tmp_path / "second" / "config").write_text("version: v1")
        assert await triggers.next() == {Reason.CONFIGURATION}

    run(config, scenario)


def test_node_without_inotify_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes run out of inotify instances: that is no reason not to offer GPUs."""

    def refuse() -> None:
        raise OSError(24, "Too many open files", "inotify")

    monkeypatch.setattr(directory_watch, "Inotify", refuse)

    async def scenario(triggers: Triggers) -> None:
        assert await triggers.next() == {Reason.CONFIGURATION}
        assert await triggers.next() == {Reason.CONFIGURATION}

    polls: list[None] = []
    run(tmp_path / "config.yaml", scenario, 0.01, lambda: polls.append(None))
    assert polls


def test_lost_inotify_watch_does_not_end_the_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0
    polled = asyncio.Event()

    def count() -> None:
        nonlocal polls
        polls += 1
        if polls == 1:

            def fail(_self: object) -> None:
                raise OSError(28, "no inotify watch is left")

            monkeypatch.setattr(directory_watch.DirectoryWatch, "renew", fail)
        if polls == 3:
            polled.set()

    async def scenario(_triggers: Triggers) -> None:
        await polled.wait()

    run(tmp_path / "config.yaml", scenario, 0.01, count)
