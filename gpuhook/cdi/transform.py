# SPDX-License-Identifier: Apache-2.0
"""A CDI spec moved to another root: of the host, or of the container.

A spec that was made in a driver container says where the files are there; moved, it says where the
host's engine finds them. Nothing but paths below the old root changes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.cdi.hot.container_edits import Spec

HOST, CONTAINER = "host", "container"
# Hooks that run in the container's mount namespace; only the last runs a program of the container.
_INSIDE = ("createContainer", "startContainer")
_PROGRAM_INSIDE = "startContainer"
_PAIR = "::"  # TARGET::LINK in the arguments of hooks that make links


@dataclass(frozen=True, slots=True)
class Move:
    """Paths below `source` are below `target` from now on; both are absolute."""

    source: str
    target: str

    def covers(self, text: str) -> bool:
        """Return whether a text is a path of `source` or below it."""
        return text.startswith("/") and (text + "/").startswith(_directory(self.source))

    def path(self, text: str) -> str:
        """Return where a path that is covered is now."""
        rest = text[len(_directory(self.source)) :]
        return _directory(self.target) + rest if rest else normpath(self.target)


def _directory(path: str) -> str:
    """Return a root with one slash at its end."""
    return normpath("/" + path.lstrip("/")).rstrip("/") + "/"


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """How options of hooks inside the container have paths in their values.

    The value of one of `of_host` is a path of the host all the same. In those of `behind`, the path
    comes behind the first such sign, in those of `before` in front of the last one; what is on the
    other side of the sign is none.
    """

    of_host: frozenset[str] = frozenset()
    behind: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)

    def parts(self, option: str, value: str) -> tuple[str, str, str]:
        """Return what is before the path, the path or paths, and what is behind it."""
        if option in self.behind:
            head, sign, path = value.partition(self.behind[option])
            return (head + sign, path, "") if sign else ("", value, "")
        if option in self.before:
            path, sign, tail = value.rpartition(self.before[option])
            return ("", path, sign + tail) if sign else ("", value, "")
        return "", value, ""


def moved(
    spec: Spec, moves: tuple[Move, ...], relative_to: str, *, options: TransformOptions
) -> Spec:
    """Return a copy of `spec` with the paths that `relative_to` names moved, each by one move.

    HOST moves hostPath of nodes and mounts, the programs of hooks that run on the host's side, and
    their arguments; CONTAINER the paths inside the container. `options` are those of hooks inside
    the container whose values are not just paths there. The first of `moves` that covers a path
    counts.
    """
    found: dict[str, Any] = copy.deepcopy(dict(spec))
    mover = _Mover(moves, options)
    for part in (found, *found.get("devices", ())):
        edits = part.get("containerEdits") or {}
        if relative_to == HOST:
            mover.host(edits)
        else:
            mover.container(edits)
    result: Spec = found  # type: ignore[assignment] # the same keys
    return result


class _Mover:
    def __init__(self, moves: tuple[Move, ...], options: TransformOptions) -> None:
        self._moves = moves
        self._options = options

    def path(self, text: str) -> str:
        """Return where the path is now."""
        move = next((move for move in self._moves if move.covers(text)), None)
        return text if move is None else move.path(text)

    def host(self, edits: dict[str, Any]) -> None:
        """Move the paths of the host in `edits`."""
        for node in edits.get("deviceNodes") or ():
            source = self.path(node.get("hostPath") or node["path"])
            if source != node["path"]:
                node["hostPath"] = source
            else:
                node.pop("hostPath", None)
        for mount in edits.get("mounts") or ():
            mount["hostPath"] = self.path(mount["hostPath"])
        for hook in edits.get("hooks") or ():
            if hook["hookName"] != _PROGRAM_INSIDE:
                hook["path"] = self.path(hook["path"])
            self._arguments(hook, is_host=True)

    def container(self, edits: dict[str, Any]) -> None:
        """Move the paths of the container in `edits`."""
        for node in edits.get("deviceNodes") or ():
            place = self.path(node["path"])
            if place != node["path"]:
                node.setdefault("hostPath", node["path"])
                node["path"] = place
        for mount in edits.get("mounts") or ():
            mount["containerPath"] = self.path(mount["containerPath"])
        for hook in edits.get("hooks") or ():
            if hook["hookName"] == _PROGRAM_INSIDE:
                hook["path"] = self.path(hook["path"])
            self._arguments(hook, is_host=False)

    def _arguments(self, hook: dict[str, Any], *, is_host: bool) -> None:
        """Move the arguments that are paths of that side; the first is the program's name."""
        if "args" not in hook:
            return
        is_inside = hook["hookName"] in _INSIDE
        hook["args"] = [
            before + self._words(option, value)
            if (is_inside and option not in self._options.of_host) != is_host
            else before + value
            for before, option, value in _split(hook["args"])
        ]

    def _words(self, option: str, value: str) -> str:
        """Return the value of `option` ("" for none) moved: a path, TARGET::LINK, a part of it."""
        head, paths, tail = self._options.parts(option, value)
        return head + _PAIR.join(self.path(part) for part in paths.split(_PAIR)) + tail


def _split(arguments: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield for each argument: what is no value, the option it is of, the value."""
    option = ""
    for text in arguments:
        name, equals, value = text.partition("=")
        if text.startswith("-") and equals:
            yield name + equals, name, value
            option = ""
        elif text.startswith("-"):
            yield text, "", ""
            option = text
        else:
            yield "", option, text
            option = ""
