# SPDX-License-Identifier: Apache-2.0
"""ChangeWatch: changed files, with and without inotify."""

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
    """Run `scenario` with a ChangeWatch of the configuration at `path`."""

    async def run_watch() -> None:
        triggers = Triggers()
        watch = ChangeWatch(Launch(ConfigSource(file=str(path)), inventory="t4"), triggers, seconds)
        watch.start(polled)
        try:
            await asyncio.wait_for(scenario(triggers), 30)
        finally:
            watch.stop()

    asyncio.run(run_watch())


def test_new_target_of_a_configuration_link_is_watched(tmp_path: Path) -> None:
    """A configuration manager sets the link to a file of another directory."""
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


def test_configuration_is_polled_without_inotify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node can run out of inotify instances."""

    def refuse() -> None:
        raise OSError(24, "Too many open files", "inotify")

    monkeypatch.setattr(directory_watch, "Inotify", refuse)

    async def scenario(triggers: Triggers) -> None:
        assert await triggers.next() == {Reason.CONFIGURATION}
        assert await triggers.next() == {Reason.CONFIGURATION}

    polls: list[None] = []
    run(tmp_path / "config.yaml", scenario, 0.01, lambda: polls.append(None))
    assert polls


def test_error_in_inotify_does_not_end_polling(
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
