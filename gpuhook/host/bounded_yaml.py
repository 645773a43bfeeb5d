# SPDX-License-Identifier: Apache-2.0
"""YAML files that people write, read within bounds: no file costs much time or memory.

Aliases can make a small file stand for a huge document, and PyYAML's constructors raise many types
of exceptions for malformed scalars. Here both raise yaml.MarkedYAMLError with the position.
"""

from __future__ import annotations

from typing import Any

import yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 256 << 10  # bytes
_MAX_PARSED_TWICE = 64 << 10
_MAX_VALUES = 200_000  # each alias adds the values that it stands for
_MAX_DEPTH = 50
_MAX_NESTING = 200
_MAX_NODES = 1_000_000  # keys and values; 100,000 CDI devices have 800,000
_TOO_DEEP = "it is nested too deeply"
_LIBYAML_TOO_DEEP = "exceeded maximum nesting depth"  # since 0.2.6, which reads ahead of its events
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(content: bytes) -> tuple[Any, yaml.Node | None]:
    """Return the document in `content` and its nodes, (None, None) without a document.

    Raises yaml.YAMLError for a syntax error, and for content larger than 256 KiB or past another
    bound of this module.
    """
    found = document(content)
    # A constructor puts merged keys into the nodes that it gets: this is another tree.
    return found, yaml.compose(content, Loader=_Loader)


def document(content: bytes, largest: int = LARGEST) -> Any:
    """Return the document in `content`, None without one; raises as read() does."""
    if len(content) > largest:
        raise yaml.YAMLError(f"it is larger than {largest >> 10} KiB")
    require_bounded(content, _MAX_VALUES)
    loader = _Loader(content)
    try:
        node = _tree(loader, content)
        if node is None:
            return None
        require_small(node)
        return value_of(loader.construct_document, node)
    finally:
        loader.dispose()


def all_documents(content: bytes, largest: int = LARGEST) -> list[Any]:
    """Return the documents in `content`, which `---` separates; raises as read() does."""
    if len(content) > largest:
        raise yaml.YAMLError(f"it is larger than {largest >> 10} KiB")
    require_bounded(content, _MAX_VALUES)
    loader = _Loader(content)
    found = []
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            require_small(node)
            found.append(value_of(loader.construct_document, node))
    finally:
        loader.dispose()
    return found


def compose(content: bytes) -> yaml.Node | None:
    """Return the nodes of a document, None without one; raises yaml.YAMLError."""
    require_bounded(content)
    root: yaml.Node | None = yaml.compose(content, Loader=_Loader)
    return root


def require_bounded(content: bytes, most: int = _MAX_NODES) -> None:
    """Raise yaml.MarkedYAMLError for content that is not safe to give to PyYAML's composer.

    It is not text, is nested so deeply that libyaml crashes, or has more than `most` keys and
    values, each of which takes 400 bytes of memory. The caller's parser reports other errors.
    """
    try:
        _count_events(content, most)
    except yaml.reader.ReaderError as error:
        raise _not_text(content, error) from error
    except yaml.constructor.ConstructorError:
        raise
    except yaml.MarkedYAMLError as error:
        if error.problem == _LIBYAML_TOO_DEEP:
            mark = error.problem_mark
            raise yaml.constructor.ConstructorError(None, None, _TOO_DEEP, mark) from error
    except yaml.YAMLError:
        return


def _count_events(content: bytes, most: int) -> None:
    depth = nodes = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > most:
                raise _too_much(event, f"it expands to more than {most} values")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_NESTING:
                raise _too_much(event, _TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def place_and_reason(error: Exception) -> tuple[int, int, str]:
    """Return line, column and reason of an exception of this module; line 0 if it is unknown."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    return line, column, getattr(error, "problem", None) or str(error)


def value_of(construct: Callable[[yaml.Node], Any], node: yaml.Node) -> Any:
    """Return `construct(node)`; yaml.MarkedYAMLError for a malformed value."""
    try:
        return construct(node)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        is_long = str(error).startswith("Exceeds the limit")  # of digits, in int()
        reason = f"a value does not match its tag: {error}"
        raise _too_much(node, "a number has too many digits" if is_long else reason) from error


def _not_text(content: bytes, error: yaml.reader.ReaderError) -> Exception:
    """Return the error with its line and column, and without PyYAML's name of the text."""
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
        if len(content) <= _MAX_PARSED_TWICE:
            yaml.compose(content, Loader=yaml.SafeLoader)  # slow, with a better position
        raise
    return found


def require_small(node: yaml.Node, most: int = _MAX_VALUES, deepest: int = _MAX_DEPTH) -> None:
    """Raise yaml.MarkedYAMLError for a tree that is too deep, or has too many values with aliases.

    A tree that contains itself is refused, too.
    """
    sizes: dict[int, int] = {}  # of nodes by id; 0 until the whole node is measured

    def measured(node: yaml.Node, depth: int) -> int:
        size = sizes.get(id(node))
        if size is not None:
            if size == 0:
                raise _too_much(node, "a value contains itself")
            return size
        if depth > deepest:
            raise _too_much(node, _TOO_DEEP)
        sizes[id(node)] = 0
        size = 1
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value if isinstance(node, yaml.SequenceNode) else []
        for child in children:
            size += measured(child, depth + 1)
            if size > most:
                raise _too_much(node, f"it expands to more than {most} values")
        sizes[id(node)] = size
        return size

    measured(node, 0)


def _too_much(node: yaml.Node | yaml.NodeEvent, reason: str) -> Exception:
    mark: Any = node.start_mark
    return yaml.constructor.ConstructorError(None, None, reason, mark)
