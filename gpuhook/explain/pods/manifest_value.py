# SPDX-License-Identifier: Apache-2.0
"""A value of a manifest and its line. Reading a missing or wrong value raises nothing."""

from __future__ import annotations

from typing import Any

import yaml

from gpuhook.device_plugin.config.grammar import yaml_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NULL, _BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class Value:
    """A node of YAML, or nothing: then all methods return empty values."""

    __slots__ = ("_items", "_members", "_node", "_source")

    def __init__(self, node: yaml.Node | None, source: str) -> None:
        self._node = node
        self._source = source
        self._items: tuple[Value, ...] | None = None  # they are read once, as the members are
        self._members: Mapping[str, Value] | None = None

    @property
    def where(self) -> str:
        """Return "pod.yaml:17" with lines from 1; only the source for a missing value."""
        if self._node is None or self._node.start_mark is None:
            return self._source
        return f"{self._source}:{self._node.start_mark.line + 1}"

    @property
    def is_there(self) -> bool:
        """Return whether the value exists and is not null."""
        return self._node is not None and self._node.tag != _NULL

    @property
    def kind(self) -> str:
        """Return "object", "array", "number", "bool", "string", or "" for nothing."""
        if not self.is_there:
            return ""
        if isinstance(self._node, yaml.MappingNode):
            return "object"
        if isinstance(self._node, yaml.SequenceNode):
            return "array"
        tag = self._node.tag if self._node is not None else ""
        return "number" if tag in _NUMBERS else "bool" if tag == _BOOL else "string"

    def __getitem__(self, key: str) -> Value:
        """Return the value of a key, nothing if it is missing or this is not an object."""
        return self.members().get(key, Value(None, self.where))

    def at(self, *keys: str) -> Value:
        """Return the value at a path of keys."""
        found = self
        for key in keys:
            found = found[key]
        return found

    def items(self) -> tuple[Value, ...]:
        """Return the items of an array."""
        if self._items is None:
            nodes = self._node.value if isinstance(self._node, yaml.SequenceNode) else ()
            self._items = tuple(Value(node, self._source) for node in nodes)
        return self._items

    def members(self) -> Mapping[str, Value]:
        """Return the members of an object in their order; the last of two with one name applies."""
        if self._members is None:
            self._members = self._read_members()
        return self._members

    def _read_members(self) -> dict[str, Value]:
        own: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for key, node in _pairs(self._node):
            if key.tag == yaml_tree.MERGE:
                value = Value(node, self._source)
                for source in value.items() or (value,):
                    for name, member in source.members().items():
                        merged.setdefault(name, member)
            elif isinstance(key, yaml.ScalarNode):
                own[key.value] = Value(node, self._source)
        return {**{name: value for name, value in merged.items() if name not in own}, **own}

    def text(self) -> str:
        """Return a scalar as it is written, "" for any other value and null."""
        scalar = isinstance(self._node, yaml.ScalarNode) and self.is_there
        return str(self._node.value) if scalar and self._node is not None else ""

    def is_true(self) -> bool:
        """Return whether this is the boolean true."""
        is_bool = self._node is not None and self._node.tag == _BOOL
        return is_bool and self.text().lower() in ("true", "yes", "on")

    def plain(self) -> Any:
        """Return the value in the types of JSON, as the API server reads it."""
        if self.kind == "object":
            return {name: value.plain() for name, value in self.members().items()}
        if self.kind == "array":
            return [value.plain() for value in self.items()]
        if self.kind == "bool":
            return self.is_true()
        return _number(self.text()) if self.kind == "number" else self.text() or self._empty()

    def _empty(self) -> str | None:
        return "" if self.is_there else None

    def texts(self) -> dict[str, str]:
        """Return the members of an object as they are written, without null."""
        return {name: value.text() for name, value in self.members().items() if value.kind}


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:  # no number of this kind, or too many digits
            continue
    return text


def _pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from node.value
