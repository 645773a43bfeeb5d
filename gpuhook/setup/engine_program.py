# SPDX-License-Identifier: Apache-2.0
"""The command line of Docker or podman: whether it answers, its runtimes, its containers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from gpuhook.engines.configure.host_programs import HostPrograms, Ran, last_words
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import Where
    from gpuhook.engines.configure.host_files import Host

WITH_IMAGES = ("docker", "podman")
_RELOAD_TIME = 10.0  # seconds
_VERSION = {"docker": "{{.Server.Version}}", "podman": "{{.Client.Version}}"}


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """A program of the host; `options` come before its command."""

    name: str
    programs: HostPrograms
    options: tuple[str, ...] = ()

    def run(self, *words: str) -> Ran:
        """Run it, and return the result; a missing program has the status of a shell."""
        ran = self.programs.run((self.name, *self.options, *words))
        return ran or Ran(self.name, 127, "", f"this host has no {self.name}")

    def no_answer(self) -> str:
        """Return that the engine does not answer and why, "" if it does."""
        ran = self.run("version", "--format", _VERSION[self.name])
        return f"{self.name} does not answer: {last_words(ran)}" if ran.status else ""

    def has_runtime(self, runtime: str) -> bool:
        """Return whether the running Docker has a runtime of this name."""
        ran = self.run("info", "--format", "{{json .Runtimes}}")
        try:
            return ran.status == 0 and runtime in json.loads(ran.output)
        except (ValueError, TypeError):
            return False

    def await_runtime(self, runtime: str) -> None:
        """Wait until Docker has a runtime: it reads its files some time after SIGHUP."""
        end = time.monotonic() + _RELOAD_TIME
        while not self.has_runtime(runtime) and time.monotonic() < end:
            time.sleep(0.1)

    def running_containers(self) -> int:
        """Return the number of running containers, 0 if it is unknown."""
        ran = self.run("ps", "--quiet")
        return 0 if ran.status else len(ran.output.split())


def engine_program(where: Where, host: Host) -> EngineProgram:
    """Return the program of an engine.

    Docker's has the socket of the daemon that is configured, whatever context the user has chosen.
    """
    programs = HostPrograms(host)
    if where.engine != "docker":
        return EngineProgram(where.engine, programs)
    directory = "/var/run" if where.home is None else state.user_directory()
    return EngineProgram("docker", programs, ("--host", f"unix://{directory}/docker.sock"))
