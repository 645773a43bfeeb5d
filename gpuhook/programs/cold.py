# SPDX-License-Identifier: Apache-2.0
"""The one way from the hot path to the cold: `gpuhook` run as a program.

HOT. YAML is parsed by it once per version of a file, and kept below the state directory; stale
specs are written anew.
"""

from __future__ import annotations

import os

from gpuhook import state
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = "gpuhook"
_MAX_OUTPUT = 65536


class Compiler:
    """Runs `gpuhook` of the same installation as the launcher."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher

    def compile_spec(self, path: str) -> None:
        """Compile one CDI spec; a broken spec is compiled into its error."""
        self._run(["cdi", "compile", path], path)

    def compile_settings(self, path: str) -> None:
        """Compile the settings file; a broken file is compiled into its error."""
        self._run(["config", "compile", path], path)

    def refresh(self, is_needed: Callable[[], bool], *options: str) -> str:
        """Have the node's specs written anew, if they still have to be once it is our turn.

        `options` are those of `gpuhook refresh`. Returns why that failed, "" if it did not.
        """
        from gpuhook.programs import refreshing  # too late to be fast

        program = self._program()
        if not program:
            return f"there is no {PROGRAM} in {':'.join(self._dirs())}"
        try:
            return refreshing.run([program, "refresh", *options], _of_node(), is_needed)
        except OSError as error:
            return f"{error.filename or program}: {error.strerror or error}"

    def _run(self, arguments: list[str], path: str) -> None:
        program = self._program()
        if not program:
            raise fault("GH1402", path=path, dirs=":".join(self._dirs()))
        try:
            status, output = _ended([program, *arguments])
        except OSError:
            status, output = -1, b""
        if status != 0:
            _print(output)
            raise fault("GH1403", path=path, command=f"{program} {' '.join(arguments)}")

    def _dirs(self) -> tuple[str, ...]:
        return (os.path.dirname(os.path.realpath(self._launcher)), *state.PROGRAM_DIRS)

    def _program(self) -> str:
        for directory in self._dirs():
            program = os.path.join(directory, PROGRAM)
            if os.access(program, os.X_OK):
                return program
        return ""


def _ended(command: list[str]) -> tuple[int, bytes]:
    """Run a command to its end; returns its wait status and the beginning of its output.

    Our standard output carries the answer to the launcher, our standard error may be the
    container's: the command has neither.
    """
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
        words = [PROGRAM, *command[1:]]
        pid = os.posix_spawn(command[0], words, _environment(), file_actions=actions)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    output = b""
    try:
        while chunk := os.read(reader, 65536):
            output = (output + chunk)[:_MAX_OUTPUT]
    finally:
        os.close(reader)
        status = os.waitpid(pid, 0)[1]
    return status, output


def _print(output: bytes) -> None:
    try:
        os.write(2, output)
    except OSError:
        return  # standard error is closed


def _environment() -> dict[str, str]:
    """Return the engine's environment without what could load foreign code into Python."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))
    }


def _of_node() -> dict[str, str]:
    """Return what of the engine's environment counts for what all containers of this node share.

    What is written outlives the one who starts this container, with podman a person whose variables
    say where data and daemons of their own are (XDG_DATA_DIRS, CUDA_MPS_PIPE_DIRECTORY).
    """
    found = {
        name: value
        for name, value in _environment().items()
        if name.startswith(("GPUHOOK_", "LC_")) or name in ("LANG", "TZ", "XDG_RUNTIME_DIR")
    }
    found["PATH"] = ":".join(state.PROGRAM_DIRS)
    return found
