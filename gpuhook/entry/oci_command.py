# SPDX-License-Identifier: Apache-2.0
"""The command line of an OCI runtime, as runc and crun take it.

Only the parts that the wrapper needs are parsed: the command, its bundle, its container id, and the
engine's log. Options are read up to the first other word, so a container named `create` is not a
command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Options that take the next word as their value: runc 1.0 to 1.3 and crun, both of GNU and of Go.
_GLOBAL_VALUES = frozenset(
    ("root", "log", "log-format", "log-level", "rootless", "criu", "cgroup-manager", "verbosity")
)
_CREATE_VALUES = frozenset(
    ("bundle", "b", "console-socket", "pid-file", "pidfd-socket", "preserve-fds", "config", "f")
)
EDITED = ("create", "run")


class Command:
    """One call of the runtime."""

    __slots__ = ("bundle", "config", "identity", "log", "log_format", "name", "root")

    def __init__(self) -> None:
        self.name = ""
        self.identity = ""
        self.bundle = "."
        self.config = ""  # crun's --config; "" is config.json of the bundle
        self.root = ""
        self.log = ""
        self.log_format = "text"


def parse(argv: list[str]) -> Command:
    """Return the command of `argv` (without the program's name); never fails: the runtime will."""
    command = Command()
    words = iter(argv)
    for name, value in _options(words, _GLOBAL_VALUES, command):
        if name == "root":
            command.root = value
        elif name == "log":
            command.log = value
        elif name == "log-format":
            command.log_format = value
    command.name, command.identity = command.identity, ""
    while command.name in EDITED:
        before = command.identity
        for name, value in _options(words, _CREATE_VALUES, command):
            if name in ("bundle", "b"):
                command.bundle = value
            elif name in ("config", "f"):
                command.config = value
        # crun takes options after the id, too; runc refuses the call, so reading on does no harm.
        if not command.identity or before:
            command.identity = before or command.identity
            break
    return command


def _options(
    words: Iterator[str], with_value: frozenset[str], command: Command
) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the options up to the first other word, which becomes the identity."""
    for word in words:
        if word == "--" or not word.startswith("-") or word == "-":
            command.identity = next(words, "") if word == "--" else word
            return
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            yield name, value
        elif name in with_value:
            yield name, next(words, "")
        elif word[1] != "-" and word[1] in "bf" and word[1] in with_value:
            yield word[1], word[2:]  # crun: -b/path
        else:
            yield name, ""
