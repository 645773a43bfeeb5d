# SPDX-License-Identifier: Apache-2.0
"""YAML of files that people write, read so that no file costs much: bounded, and never a crash.

Aliases make a small file a huge one for whoever walks through it, and PyYAML's own constructors
raise what they like for odd scalars. Here both are a yaml.MarkedYAMLError with its place.
"""

from __future__ import annotations

from typing import Any

import yaml

_MAX_SIZE = 256 << 10
_MAX_RETOLD = 64 << 10
_MAX_VALUES = 200_000  # aliases counted as often as they stand for something
_MAX_DEPTH = 50
_MAX_NESTING = 200
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(content: bytes) -> tuple[Any, yaml.Node | None]:
    """Return (the document in `content`, its nodes), (None, None) where there is none.

    Raises yaml.YAMLError for what is no YAML, larger than 256 KiB, or too much in another way.
    """
    found = document(content)
    # What is merged into a mapping is put into its node when that becomes a value: a new tree.
    return found, yaml.compose(content, Loader=_Loader)


def document(content: bytes, largest: int = _MAX_SIZE) -> Any:
    """Return the document in `content`, None where there is none; raises as read() does."""
    if len(content) > largest:
        raise yaml.YAMLError(f"it is larger than {largest >> 10} KiB")
    require_shallow(content)
    loader = _Loader(content)
    try:
        node = _tree(loader, content)
        if node is None:
            return None
        _measure(node, {}, 0)
        return _document(loader, node)
    finally:
        loader.dispose()


def require_shallow(content: bytes) -> None:
    """Raise yaml.YAMLError for what is nested so deeply that libyaml's composer would crash.

    What is no YAML is left to whoever reads it.
    """
    depth = 0
    try:
        for event in yaml.parse(content, Loader=_Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_NESTING:
                    raise _too_deep(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.constructor.ConstructorError:
        raise
    except yaml.YAMLError:
        return


def _too_deep(event: Any) -> Exception:
    reason = "it is nested too deeply"
    return yaml.constructor.ConstructorError(None, None, reason, event.start_mark)


def _tree(loader: Any, content: bytes) -> yaml.Node | None:
    try:
        found: yaml.Node | None = loader.get_single_node()
    except yaml.YAMLError:
        if len(content) <= _MAX_RETOLD:
            yaml.compose(content, Loader=yaml.SafeLoader)  # slow, and says the place better
        raise
    return found


def _document(loader: Any, node: yaml.Node) -> Any:
    """Return the value of `node`; what a constructor cannot take is told with the place."""
    try:
        return loader.construct_document(node)
    except (AttributeError, OverflowError, TypeError, ValueError, KeyError) as error:
        reason = f"a value is not what it claims to be: {error}"
        raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark) from error


def _measure(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Return how many values a node stands for; raises for too many, too deep, and circles."""
    size = known.get(id(node))
    if size is not None:
        if size == 0:
            raise _too_much(node, "a value contains itself")
        return size
    if depth > _MAX_DEPTH:
        raise _too_much(node, "it is nested too deeply")
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


def _too_much(node: yaml.Node, reason: str) -> Exception:
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)
