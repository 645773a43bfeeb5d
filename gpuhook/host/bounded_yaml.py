# SPDX-License-Identifier: Apache-2.0
"""YAML of files that people write, read so that no file costs much: bounded, and never a crash.

Aliases make a small file a huge one for whoever walks through it, and PyYAML's own constructors
raise what they like for odd scalars. Here both are a yaml.MarkedYAMLError with its place.
"""

from __future__ import annotations

from typing import Any

import yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 256 << 10
_MAX_RETOLD = 64 << 10
_MAX_VALUES = 200_000  # aliases counted as often as they stand for something
_MAX_DEPTH = 50
_MAX_NESTING = 200
_MAX_NODES = 1_000_000  # keys and values; 100,000 CDI devices have 800,000
_TOO_DEEP = "it is nested too deeply"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(content: bytes) -> tuple[Any, yaml.Node | None]:
    """Return (the document in `content`, its nodes), (None, None) where there is none.

    Raises yaml.YAMLError for what is no YAML, larger than 256 KiB, or too much in another way.
    """
    found = document(content)
    # What is merged into a mapping is put into its node when that becomes a value: a new tree.
    return found, yaml.compose(content, Loader=_Loader)


def document(content: bytes, largest: int = LARGEST) -> Any:
    """Return the document in `content`, None where there is none; raises as read() does."""
    if len(content) > largest:
        raise yaml.YAMLError(f"it is larger than {largest >> 10} KiB")
    require_bounded(content, _MAX_VALUES)
    loader = _Loader(content)
    try:
        node = _tree(loader, content)
        if node is None:
            return None
        _measure(node, {}, 0)
        return value_of(loader.construct_document, node)
    finally:
        loader.dispose()


def require_bounded(content: bytes, most: int = _MAX_NODES) -> None:
    """Raise yaml.MarkedYAMLError for text that PyYAML's composer must not be given.

    That is what is nested so deeply that libyaml crashes, what has more than `most` keys and
    values, each of which takes 400 bytes of memory, and what is not text. Another syntax error is
    left to the caller's parser.
    """
    depth = nodes = 0
    try:
        for event in yaml.parse(content, Loader=_Loader):
            if isinstance(event, yaml.NodeEvent):
                nodes += 1
                if nodes > most:
                    raise _too_much(event, f"it stands for more than {most} values")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_NESTING:
                    raise _too_much(event, _TOO_DEEP)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.reader.ReaderError as error:
        raise _no_text(content, error) from error
    except yaml.constructor.ConstructorError:
        raise
    except yaml.YAMLError:
        return


def place_and_reason(error: Exception) -> tuple[int, int, str]:
    """Return line, column and reason of what a function of this module raised; line 0: unknown."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    reason = _TOO_DEEP if isinstance(error, RecursionError) else str(error)
    return line, column, getattr(error, "problem", None) or reason


def value_of(construct: Callable[[yaml.Node], Any], node: yaml.Node) -> Any:
    """Return `construct(node)`; yaml.MarkedYAMLError for a value that it cannot take."""
    try:
        return construct(node)
    except (AttributeError, OverflowError, TypeError, ValueError, KeyError) as error:
        is_long = str(error).startswith("Exceeds the limit")  # of digits, in int()
        reason = f"a value is not what it claims to be: {error}"
        raise _too_much(node, "a number has too many digits" if is_long else reason) from error


def _no_text(content: bytes, error: yaml.reader.ReaderError) -> Exception:
    """Return the error with its line and column, and without what PyYAML calls the text."""
    before = content[: error.position]
    line, column = before.count(b"\n"), len(before) - (before.rfind(b"\n") + 1)
    mark = yaml.Mark("", error.position, line, column, None, 0)
    is_character = "characters are not allowed" in error.reason
    reason = "it has a character that YAML does not allow" if is_character else "it is not UTF-8"
    return yaml.constructor.ConstructorError(None, None, reason, mark)


def _tree(loader: Any, content: bytes) -> yaml.Node | None:
    try:
        found: yaml.Node | None = loader.get_single_node()
    except yaml.YAMLError:
        if len(content) <= _MAX_RETOLD:
            yaml.compose(content, Loader=yaml.SafeLoader)  # slow, and says the place better
        raise
    return found


def _measure(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Return how many values a node stands for; raises for too many, too deep, and circles."""
    size = known.get(id(node))
    if size is not None:
        if size == 0:
            raise _too_much(node, "a value contains itself")
        return size
    if depth > _MAX_DEPTH:
        raise _too_much(node, _TOO_DEEP)
    known[id(node)] = 0
    size = 1
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    else:
        children = node.value if isinstance(node, yaml.SequenceNode) else []
    for child in children:
        size += _measure(child, known, depth + 1)
        if size > _MAX_VALUES:
            raise _too_much(node, f"it stands for more than {_MAX_VALUES} values")
    known[id(node)] = size
    return size


def _too_much(node: yaml.Node | yaml.NodeEvent, reason: str) -> Exception:
    mark: Any = node.start_mark
    return yaml.constructor.ConstructorError(None, None, reason, mark)
