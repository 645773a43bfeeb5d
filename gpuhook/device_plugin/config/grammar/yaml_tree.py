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
from gpuhook.host import bounded_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    roots = _roots(content, YamlBounds(), lambda text: [yaml.compose(text, Loader=_Loader)])
    return roots[0] if roots else None


def compose_all(content: bytes, bounds: YamlBounds) -> tuple[yaml.Node, ...]:
    """Return the root nodes of all documents that are not empty; raises NotReadableError."""
    return _roots(content, bounds, lambda text: yaml.compose_all(text, Loader=_Loader))


def _roots(
    content: bytes, bounds: YamlBounds, parse: Callable[[bytes], Iterable[yaml.Node | None]]
) -> tuple[yaml.Node, ...]:
    if len(content) > bounds.largest:
        raise NotReadableError(f"the file is larger than {bounds.largest >> 10} KiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotReadableError("the file is not UTF-8 text", line) from error
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON allows tabs as indentation, and not in its strings
    content = text.encode()
    try:
        bounded_yaml.require_bounded(content, bounds.most_nodes)
        roots = tuple(root for root in parse(content) if root is not None)
        if roots:  # all documents together are within the bounds
            begin = roots[0].start_mark
            whole = yaml.SequenceNode("", list(roots), begin, begin)
            bounded_yaml.require_small(whole, bounds.most_nodes, bounds.deepest + 1)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        problem = error.problem or "is not YAML"
        if "another document" in problem:
            hint = "write each named configuration as another file, or another key of the ConfigMap"
            raise NotReadableError("another document begins here", line, column, hint) from error
        raise NotReadableError(printable(problem), line, column, _hint(text, line)) from error
    return roots


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


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return "indent YAML with spaces: this line has a tab"
    return ""
