# SPDX-License-Identifier: Apache-2.0
"""YAML or JSON text as nodes with lines and columns, in bounded time for any text.

The tree is safe to walk: its depth and its size with expanded aliases are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 256 << 10  # bytes; a ConfigMap can have 1 MiB in all of its files
DEEPEST = 32
MOST_NODES = 20_000  # with expanded aliases
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_CONSTRUCTOR = SafeConstructor()
MERGE, MAP = _TAG + "merge", _TAG + "map"
_SCALARS = ("null", "bool", "int", "float", "str", "timestamp", "value", "merge")


class NotReadableError(Exception):
    """A text that is not one document of YAML or JSON; the first line and column are 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint


@dataclass(frozen=True, slots=True)
class YamlBounds:
    """The limits of a text: bytes, depth, and values with expanded aliases."""

    largest: int = LARGEST
    deepest: int = DEEPEST
    most_nodes: int = MOST_NODES


def compose(content: bytes) -> yaml.Node | None:
    """Return the root node of a document, None for an empty one; raises NotReadableError."""
    node: yaml.Node | None = _composed(content, YamlBounds(), yaml.compose)
    return node


def compose_all(content: bytes, bounds: YamlBounds) -> tuple[yaml.Node, ...]:
    """Return the root nodes of all documents that are not empty; raises NotReadableError."""

    def every(text: str, Loader: type[Any]) -> tuple[yaml.Node, ...]:  # noqa: N803
        return tuple(yaml.compose_all(text, Loader=Loader))

    nodes: tuple[yaml.Node, ...] = _composed(content, bounds, every)
    return nodes


def _composed(content: bytes, bounds: YamlBounds, how: Callable[..., Any]) -> Any:
    if len(content) > bounds.largest:
        raise NotReadableError(f"the file is larger than {bounds.largest >> 10} KiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotReadableError("the file is not UTF-8 text", line) from error
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON allows tabs as indentation, and not in its strings
    try:
        _measure(text, bounds)
        return how(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        problem = error.problem or "is not YAML"
        if "another document" in problem:
            hint = "write each named configuration as another file, or another key of the ConfigMap"
            raise NotReadableError("another document begins here", line, column, hint) from error
        raise NotReadableError(printable(problem), line, column, _hint(text, line)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotReadableError("has a character that YAML does not allow", line) from error


def plain(node: yaml.Node) -> object:
    """Return the plain data of a node; 1:2 is a text, and not a number as in YAML 1.1.

    Raises NotReadableError for tags outside the core schema.
    """
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {}  # no kind of value is a mapping: only its type is reported
    assert isinstance(node, yaml.ScalarNode)  # noqa: S101 # the only other kind of node
    if node.tag.removeprefix(_TAG) not in _SCALARS:
        mark = node.start_mark
        raise NotReadableError(
            f"the tag {printable(node.tag, 80)} is not supported", mark.line + 1, mark.column + 1
        )
    return _scalar(node)


def _scalar(node: yaml.ScalarNode) -> object:
    text: str = node.value
    tag = node.tag.removeprefix(_TAG)
    if tag == "null":
        return None
    if tag == "bool":
        return SafeConstructor.bool_values.get(text.lower(), text)
    try:
        if tag == "int" and ":" not in text:
            return int(_CONSTRUCTOR.construct_yaml_int(node))
        if tag == "float" and ":" not in text:
            return float(_CONSTRUCTOR.construct_yaml_float(node))
    except (ValueError, ArithmeticError, IndexError):
        return text  # !!int "", or more digits than Python converts
    return text


class _Measure:
    """The size and depth of a document with expanded aliases."""

    def __init__(self, bounds: YamlBounds) -> None:
        self.bounds = bounds
        self.nodes = 0
        self.open: list[tuple[str | None, int]] = []  # anchor, nodes before it
        self.sizes: dict[str, int | None] = {}  # by anchor; None until its node ends

    def take(self, event: yaml.Event) -> None:
        """Add one event; raises NotReadableError above a limit."""
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, before = self.open.pop()
            if anchor is not None:
                self.sizes[anchor] = self.nodes - before
            return
        if isinstance(event, yaml.AliasEvent):
            size = self.sizes.get(event.anchor or "", 1)  # the composer reports an unknown one
            if size is None:
                raise _at(event, f"*{printable(event.anchor, 80)} contains itself")
            self.nodes += size
        elif isinstance(event, yaml.NodeEvent):
            self._begin(event)
        if self.nodes > self.bounds.most_nodes:
            most = self.bounds.most_nodes
            raise _at(event, f"has more than {most} values with expanded aliases")

    def _begin(self, event: yaml.NodeEvent) -> None:
        self.nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            self.open.append((event.anchor, self.nodes - 1))
            if event.anchor is not None:
                self.sizes[event.anchor] = None
            if len(self.open) > self.bounds.deepest:
                raise _at(event, f"is nested more than {self.bounds.deepest} levels deep")
        elif event.anchor is not None:
            self.sizes[event.anchor] = 1


def _measure(text: str, bounds: YamlBounds) -> None:
    """Raise NotReadableError for a text that is too deep or too large."""
    measure = _Measure(bounds)
    for event in yaml.parse(text, Loader=_Loader):
        measure.take(event)


def _at(event: yaml.Event, message: str) -> NotReadableError:
    mark = event.start_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return NotReadableError(message, line, column)


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return "indent YAML with spaces: this line has a tab"
    return ""
