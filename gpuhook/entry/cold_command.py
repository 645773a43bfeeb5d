# SPDX-License-Identifier: Apache-2.0
"""The one way from the hot path to cold code: running `gpuhook` as a program.

It parses YAML once per version of a file and keeps the result below the state directory, and it
writes stale specs again.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = "gpuhook"
_AT_ONCE = 256  # paths of one command line


class Compiler:
    """Runs `gpuhook` of the same installation as the launcher."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher

    def compile_spec(self, *paths: str) -> None:
        """Compile CDI specs; for a broken spec the result is its error."""
        for start in range(0, len(paths), _AT_ONCE):
            self._run(["cdi", "compile", *paths[start : start + _AT_ONCE]], paths[start])

    def compile_settings(self, path: str) -> None:
        """Compile the settings file; for a broken file the result is its error."""
        self._run(["config", "compile", path], path)

    def refresh(self, is_needed: Callable[[], bool], *options: str) -> str:
        """Write the node's specs again, if that is still needed after waiting for the lock.

        `options` are those of `gpuhook refresh`. Returns why that failed, "" if it did not.
        """
        from gpuhook.entry import command_process  # only for a stale spec

        program = state.find_program(self._launcher, PROGRAM)
        if not program:
            return f"there is no {PROGRAM} in {':'.join(state.program_dirs(self._launcher))}"
        try:
            return command_process.refresh([program, "refresh", *options], is_needed)
        except OSError as error:
            return f"{error.filename or program}: {error.strerror or error}"

    def _run(self, arguments: list[str], path: str) -> None:
        program = state.find_program(self._launcher, PROGRAM)
        if not program:
            raise fault("GH1402", path=path, dirs=":".join(state.program_dirs(self._launcher)))
        from gpuhook.entry import command_process  # once per version of a file

        try:
            status, output = command_process.run([program, *arguments])
            reason = command_process.reason(output, status) if status else ""
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            command = f"{program} {' '.join(arguments)}"
            raise fault("GH1403", path=path, command=command, reason=reason)
