# SPDX-License-Identifier: Apache-2.0
"""The text of a configuration file as checked values with their places, and all errors at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar import key_hints, yaml_tree
from gpuhook.device_plugin.config.grammar.grammar import MOST_ENTRIES, Either, Entries, Section
from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, ValueKind, shown
from gpuhook.device_plugin.config.grammar.yaml_tree import NotReadableError
from gpuhook.errors import printable

_MOST_HINTS = 100
# An empty one of these removes a limit.
_LIMITS = ("memory", "oversubscribe", "replicas", "unit", "memoryUnits", "memoryReserve", "guard")


@dataclass(slots=True)
class Document:
    """Values by key as a file nests them, without wrong values; a wrong list entry is None.

    `places` has for a path the line and column of its value, or the source of its override.
    """

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int] | str] = field(default_factory=dict)
    findings: list[ConfigFinding] = field(default_factory=list)

    def error(self, path: str, message: str, hint: str = "", node: yaml.Node | None = None) -> None:
        """Add an error at a node, else at the place of `path`, or of the nearest key around it."""
        self._add(ERROR, path, message, hint, node)

    def warn(self, path: str, message: str, hint: str = "", node: yaml.Node | None = None) -> None:
        """Add a warning at a node, else at the place of `path`, or of the nearest key around it."""
        self._add(WARNING, path, message, hint, node)

    def _add(
        self, severity: str, path: str, message: str, hint: str, node: yaml.Node | None
    ) -> None:
        near = path
        while near not in self.places and near:
            near = near[: max(near.rfind("."), near.rfind("["), 0)]
        place = _place(node) if node is not None else self.places.get(near, (0, 0))
        source, (line, column) = (place, (0, 0)) if isinstance(place, str) else (self.source, place)
        self.findings.append(ConfigFinding(severity, path, line, column, message, hint, source))

    def get(self, path: str) -> Any:
        """Return the value at a path of sections, None if it is not set."""
        value: Any = self.values
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def entries(self, path: str) -> list[tuple[str, Any]]:
        """Return (path, values) of the well-formed entries of the list at a path of sections."""
        return [
            (f"{path}[{index}]", values)
            for index, values in enumerate(self.get(path) or ())
            if values is not None
        ]

    def put(self, path: str, value: object, source: str) -> None:
        """Set the value at a path of sections; `source` is its place."""
        *sections, name = path.split(".")
        values = self.values
        for section in sections:
            values = values.setdefault(section, {})
        values[name] = value
        self.places[path] = source


def parse(content: bytes, source: str, section: Section, *, strict: bool = False) -> Document:
    """Return the values of a file with the keys of `section`. `strict`: unknown keys are errors."""
    document = Document(source)
    try:
        root = yaml_tree.compose(content)
    except NotReadableError as error:
        document.places[""] = (error.line, error.column)
        document.error("", error.message, error.hint)
        return document
    if root is None:
        if source:
            document.warn("", "is empty: all keys have their defaults")
        return document
    if (other := key_hints.foreign_file(root, section)) is not None:
        document.error(*other)  # only that: the keys of another kind of file mean nothing here
        return document
    document.values = _Reader(document, section, strict=strict).section(root, section, "")
    return document


class _Reader:
    """Reads the nodes of one file into its document."""

    def __init__(self, document: Document, root: Section, *, strict: bool) -> None:
        self._document = document
        self._root = root
        self._strict = strict  # unknown keys are errors

    def section(self, node: yaml.Node, section: Section, path: str) -> dict[str, object]:
        """Return the right values of a mapping."""
        self._document.places[path] = _place(node)
        if _is_null(node):
            node = yaml.MappingNode(yaml_tree.MAP, [], node.start_mark, node.end_mark)
        if not isinstance(node, yaml.MappingNode):
            hint = "a configuration begins with `version: v1`" if not path else ""
            self._document.error(path, f"must be a mapping, found {_found(node)}", hint)
            return {}
        values: dict[str, object] = {}
        given: set[str] = set()
        for name, key_node, value in self._pairs(node, path):
            key = section.key(name)
            if key is None:
                given.add(self._unknown_key(name, key_node, section, path))
                continue
            given.add(name)
            here = f"{path}.{name}" if path else name
            is_section = isinstance(key.kind, Section) and not key.may_be_null
            if not _is_null(value) or is_section:
                self._value(value, key.kind, here, values, name)
            elif key.required:
                given.discard(name)
            elif name in _LIMITS:
                self._document.warn(here, "is empty: its default applies", node=key_node)
        for key in section.keys:
            if key.required and key.name not in given:
                self._document.error(f"{path}.{key.name}", "is missing")
        return values

    def _value(
        self,
        node: yaml.Node,
        kind: ValueKind | Section | Entries | Either,
        path: str,
        values: dict[str, object],
        name: str,
    ) -> None:
        """Put the value of a node into `values` if it is right."""
        self._document.places[path] = _place(node)
        if isinstance(kind, Either):
            kind = kind.section if isinstance(node, yaml.MappingNode) else kind.kind
        if isinstance(kind, Section):
            values[name] = self.section(node, kind, path)
        elif isinstance(kind, Entries):
            values[name] = self._entries(node, kind, path)
        else:
            items = node.value if isinstance(node, yaml.SequenceNode) else ()
            for index, item in enumerate(items):
                self._document.places[f"{path}[{index}]"] = _place(item)
            try:
                values[name] = kind.parse(yaml_tree.plain(node))
            except UnfitError as error:
                at = path if error.index is None else f"{path}[{error.index}]"
                self._document.error(at, error.message, error.hint)
            except NotReadableError as error:
                self._document.error(path, error.message)

    def _entries(self, node: yaml.Node, kind: Entries, path: str) -> list[dict[str, object] | None]:
        """Return the entries of a list of mappings; a wrong entry is None."""
        if not isinstance(node, yaml.SequenceNode):
            hint = "begin each entry with '- '" if isinstance(node, yaml.MappingNode) else ""
            self._document.error(path, f"must be a list, found {_found(node)}", hint)
            return []
        if not node.value and not kind.may_be_empty:
            self._document.error(path, f"is empty: at least one {kind.what} is required")
        if len(node.value) > MOST_ENTRIES:
            self._document.error(path, f"has more than {MOST_ENTRIES} entries")
            return []
        entries: list[dict[str, object] | None] = []
        for index, item in enumerate(node.value):
            before = len(self._document.findings)
            if _is_null(item):
                self._document.places[f"{path}[{index}]"] = _place(item)
                self._document.error(f"{path}[{index}]", "must be a mapping, but is empty")
                values = {}
            else:
                values = self.section(item, kind.section, f"{path}[{index}]")
            wrong = any(f.severity == ERROR for f in self._document.findings[before:])
            entries.append(None if wrong else values)
        return entries

    def _pairs(self, node: yaml.MappingNode, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return name, key and value of each pair; merged pairs (<<) yield to the mapping's own."""
        if node.tag != yaml_tree.MAP:
            self._document.error(path, f"the tag {printable(node.tag, 80)} is not supported")
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == yaml_tree.MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    if not isinstance(source, yaml.MappingNode):
                        message = "<< takes a mapping, or a list of mappings"
                        self._document.error(path, message, node=key)
                        continue
                    for name, *nodes in self._pairs(source, path):
                        merged.setdefault(name, (nodes[0], nodes[1]))
            elif not isinstance(key, yaml.ScalarNode):
                self._document.error(path, f"a key must be a string, found {_found(key)}", node=key)
            elif key.value in own:
                here = f"{path}.{key.value}" if path else key.value
                line = own[key.value][0].start_mark.line + 1
                self._document.error(here, f"is set twice, first in line {line}", node=key)
            else:
                own[key.value] = (key, value)
        return [(name, *nodes) for name, nodes in (merged | own).items()]

    def _unknown_key(self, name: str, key: yaml.Node, section: Section, path: str) -> str:
        """Report an unknown key; return the known key that it certainly means, or ""."""
        here = f"{path}.{name}" if path else name
        for unserved, reason, hint in section.unserved:
            if unserved == name:
                self._document.error(here, reason, hint, key)
                return ""
        # NVIDIA's plugin ignores case, so to ignore such a key would change what it configured.
        same = next((one.name for one in section.keys if one.name.lower() == name.lower()), "")
        has_hint = len(self._document.findings) < _MOST_HINTS  # each takes a search of all keys
        hint = key_hints.hint(name, path, section, self._root) if has_hint else ""
        if same:
            self._document.error(here, "unknown key; keys are case-sensitive", hint, key)
        elif self._strict:
            self._document.error(here, "unknown key", hint, key)
        else:
            self._document.warn(here, "unknown key, ignored", hint, key)
        return same


def _place(node: yaml.Node) -> tuple[int, int]:
    """Return the line and the column of a node, from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _found(node: yaml.Node) -> str:
    """Return a node as a sentence names it."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    try:
        return shown(yaml_tree.plain(node))
    except NotReadableError:
        return f"the tag {printable(node.tag, 80)}"
