# SPDX-License-Identifier: Apache-2.0
"""The process `gpuhook nri run` of an installation, with its log, for the tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.installation import Installation
from tests.waiting import eventually


class NriPlugin:
    """A running plugin."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """Return the lines of its log, or those of one event."""
        text = self._log.read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in found if not event or line["event"] == event]

    def text(self) -> str:
        """Return its log."""
        return self._log.read_text(encoding="utf-8")

    def wait_for(self, event: str, number: int = 1) -> dict[str, Any]:
        """Wait until its log has `number` lines of an event; return the last one."""
        eventually(lambda: len(self.lines(event)) >= number, f"{event} in {self.text()}")
        return self.lines(event)[-1]

    @property
    def resident(self) -> int:
        """The KiB of memory that it has."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(text.partition("VmRSS:")[2].split()[0])


@contextmanager
def nri_plugin(
    node: Installation,
    socket: Path,
    *options: str,
    env: dict[str, str] | None = None,
    steps: str = "",
) -> Iterator[NriPlugin]:
    """Run the plugin of an installation for the runtime that listens at `socket`.

    `steps` are shell commands for a mount namespace of its own.
    """
    log = node.place / "nri.log"
    command = [str(node.bindir / "gpuhook"), "--log-format", "json", "nri", "run"]
    command += ["--socket", str(socket), *options]
    if steps:
        script = f'{steps} && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **node.env, **(env or {})}, stderr=output
        )
    try:
        yield NriPlugin(process, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
