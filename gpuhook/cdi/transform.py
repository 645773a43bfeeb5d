# SPDX-License-Identifier: Apache-2.0
"""A CDI spec moved to another root, of the host or of the container.

A spec that was generated in a driver container has the paths that the files have there; the moved
spec has the paths on the host. Only paths below the old root change.
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
    """A move of all paths below `source` to `target`; both are absolute."""

    source: str
    target: str

    def covers(self, text: str) -> bool:
        """Return whether a text is the path `source` or a path below it."""
        return text.startswith("/") and (text + "/").startswith(_directory(self.source))

    def path(self, text: str) -> str:
        """Return the new path of a path that is covered."""
        rest = text[len(_directory(self.source)) :]
        return _directory(self.target) + rest if rest else normpath(self.target)


def _directory(path: str) -> str:
    return normpath("/" + path.lstrip("/")).rstrip("/") + "/"


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """The options of hooks inside the container whose values contain paths.

    The value of an option in `of_host` is a path on the host. In a value of `behind`, the path
    begins after the first such sign; in a value of `before`, it ends before the last one. The other
    side of the sign is not a path.
    """

    of_host: frozenset[str] = frozenset()
    behind: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)

    def parts(self, option: str, value: str) -> tuple[str, str, str]:
        """Return the text before the path or paths, these, and the text after them."""
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
    their arguments; CONTAINER moves the paths inside the container. `options` are those of hooks
    inside the container whose values are not plain paths there. The first of `moves` that covers a
    path applies.
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
        """Return the new path."""
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
        """Return the moved value of `option` ("" for none): a path, TARGET::LINK, or a part."""
        head, paths, tail = self._options.parts(option, value)
        return head + _PAIR.join(self.path(part) for part in paths.split(_PAIR)) + tail


def _split(arguments: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield for each argument: the text before its value, the option of the value, the value."""
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
