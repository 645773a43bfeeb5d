# SPDX-License-Identifier: Apache-2.0
"""The text of a configuration file as checked values, each with its place; all errors at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar import config_keys, foreign_file
from gpuhook.device_plugin.config.grammar import key_spelling as config_spelling
from gpuhook.device_plugin.config.grammar import yaml_tree as config_yaml
from gpuhook.device_plugin.config.grammar.grammar import MOST_ENTRIES, Either, Entries, Section
from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, ValueKind, shown
from gpuhook.device_plugin.config.grammar.yaml_tree import NotReadableError
from gpuhook.errors import printable
from gpuhook.host.suggestion import nearest

_MOST_HINTS = 100
LIMIT_KEYS = (
    "memory",
    "oversubscribe",
    "replicas",
    "unit",
    "memoryUnits",
    "memoryReserve",
    "guard",
)
SETTINGS_FILE = "/etc/gpuhook/config.yaml"
SETTINGS = ("limits", "request", "runtime", "cdi")  # its sections


@dataclass(slots=True)
class Document:
    """Values by key as a file nests them; what is wrong is left away, a wrong list entry is None.

    `places` says for a path where its value is: line and column, or the override's source.
    """

    source: str
    values: dict[str, object] = field(default_factory=dict)
    places: dict[str, tuple[int, int] | str] = field(default_factory=dict)
    findings: list[ConfigFinding] = field(default_factory=list)

    def add(self, severity: str, path: str, message: str, hint: str = "") -> None:
        """Add a finding at the place of `path`, or of the nearest thing around it."""
        near = path
        while near not in self.places and near:
            near = near[: max(near.rfind("."), near.rfind("["), 0)]
        place = self.places.get(near, (0, 0))
        source, (line, column) = (place, (0, 0)) if isinstance(place, str) else (self.source, place)
        self.findings.append(ConfigFinding(severity, path, line, column, message, hint, source))

    def get(self, path: str) -> object:
        """Return the value at a path of sections, None if there is none."""
        value: object = self.values
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def put(self, path: str, value: object, source: str) -> None:
        """Set the value at a path of sections, as `source` says it."""
        *sections, name = path.split(".")
        values = self.values
        for section in sections:
            inner = values.setdefault(section, {})
            assert isinstance(inner, dict)  # noqa: S101 # sections are read as mappings only
            values = inner
        values[name] = value
        self.places[path] = source


def parse(content: bytes, source: str, *, strict: bool = False) -> Document:
    """Return what a file says. `strict` makes unknown keys errors. Raises nothing."""
    document = Document(source)
    try:
        root = config_yaml.compose(content)
    except NotReadableError as error:
        document.places[""] = (error.line, error.column)
        document.add(ERROR, "", error.message, error.hint)
        return document
    if root is None:
        if source:
            document.add(WARNING, "", "nothing is in it: all defaults count")
        return document
    reader = _Reader(document, WARNING if not strict else ERROR)
    if (other := foreign_file.foreign_file(root)) is not None:
        reader.wrong_file(other)
        return document
    document.values = reader.section(root, config_keys.FILE, "")
    return document


class _Reader:
    """Reads nodes by the grammar into one document."""

    def __init__(self, document: Document, unknown: str) -> None:
        self._document = document
        self._unknown = unknown

    def wrong_file(self, other: foreign_file.ForeignFile) -> None:
        """Tell that the file is of another kind, and no more: its keys mean nothing here."""
        self._at(other.key, other.name, other.message, other.hint)

    def section(self, node: yaml.Node, section: Section, path: str) -> dict[str, object]:
        """Return the values of a mapping, without what is wrong in it."""
        self._place(path, node)
        if _is_null(node):
            node = yaml.MappingNode(config_yaml.MAP, [], node.start_mark, node.end_mark)
        if not isinstance(node, yaml.MappingNode):
            hint = "a configuration begins with `version: v1`" if not path else ""
            self._error(path, f"must be a mapping, found {_found(node)}", hint)
            return {}
        values: dict[str, object] = {}
        given: set[str] = set()
        for name, key_node, value in self._pairs(node, path):
            key = section.key(name)
            if key is None:
                given.add(self._stranger(name, key_node, section, path))
                continue
            given.add(name)
            here = f"{path}.{name}" if path else name
            is_section = isinstance(key.kind, Section) and not key.may_be_null
            if not _is_null(value) or is_section:
                self._value(value, key.kind, here, values, name)
            elif key.required:
                given.discard(name)
            elif name in LIMIT_KEYS:
                self._at(key_node, here, "is empty, which is as if it were not there", "", WARNING)
        for key in section.keys:
            if key.required and key.name not in given:
                self._error(f"{path}.{key.name}", "is missing")
        return values

    def _value(
        self,
        node: yaml.Node,
        kind: ValueKind | Section | Entries | Either,
        path: str,
        values: dict[str, object],
        name: str,
    ) -> None:
        """Put the value of a node into `values`, unless it is wrong."""
        self._place(path, node)
        if isinstance(kind, Either):
            kind = kind.section if isinstance(node, yaml.MappingNode) else kind.kind
        if isinstance(kind, Section):
            values[name] = self.section(node, kind, path)
        elif isinstance(kind, Entries):
            values[name] = self._entries(node, kind, path)
        else:
            for index, item in enumerate(node.value if _is_list(node) else ()):
                self._place(f"{path}[{index}]", item)
            try:
                values[name] = kind.of(config_yaml.plain(node))
            except UnfitError as error:
                self._unfit(error, path)
            except NotReadableError as error:
                self._error(path, error.message)

    def _unfit(self, error: UnfitError, path: str) -> None:
        if error.index is not None:
            path = f"{path}[{error.index}]"
        self._error(path, error.message, error.hint)

    def _entries(self, node: yaml.Node, kind: Entries, path: str) -> list[dict[str, object] | None]:
        """Return the entries of a list of mappings; None stands for one that is wrong."""
        if not isinstance(node, yaml.SequenceNode):
            hint = "begin each entry with '- '" if isinstance(node, yaml.MappingNode) else ""
            self._error(path, f"must be a list, found {_found(node)}", hint)
            return []
        if not node.value and not kind.may_be_empty:
            self._error(path, f"lists no {kind.what}")
        if len(node.value) > MOST_ENTRIES:
            self._error(path, f"lists more than {MOST_ENTRIES} entries")
            return []
        entries: list[dict[str, object] | None] = []
        for index, item in enumerate(node.value):
            before = len(self._document.findings)
            if _is_null(item):
                self._place(f"{path}[{index}]", item)
                self._error(f"{path}[{index}]", "must be a mapping, found nothing")
                values = {}
            else:
                values = self.section(item, kind.section, f"{path}[{index}]")
            wrong = any(f.severity == ERROR for f in self._document.findings[before:])
            entries.append(None if wrong else values)
        return entries

    def _pairs(self, node: yaml.MappingNode, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return name, key and value of a mapping; what it merges (<<) comes where it has none."""
        if node.tag != config_yaml.MAP:
            self._error(path, f"the tag {printable(node.tag, 80)} has no meaning here")
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == config_yaml.MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    if not isinstance(source, yaml.MappingNode):
                        self._at(key, path, "<< takes a mapping, or a list of mappings")
                        continue
                    for name, *nodes in self._pairs(source, path):
                        merged.setdefault(name, (nodes[0], nodes[1]))
            elif not isinstance(key, yaml.ScalarNode):
                self._at(key, path, f"a key must be a text, found {_found(key)}")
            elif key.value in own:
                here = f"{path}.{key.value}" if path else key.value
                line = own[key.value][0].start_mark.line + 1
                self._at(key, here, f"is there twice, first in line {line}")
            else:
                own[key.value] = (key, value)
        return [(name, *nodes) for name, nodes in (merged | own).items()]

    def _stranger(self, name: str, key: yaml.Node, section: Section, path: str) -> str:
        """Tell of an unknown key; return the name of the key that it stands for, if it is clear."""
        here = f"{path}.{name}" if path else name
        for unserved, *why in section.unserved:
            if unserved == name:
                self._at(key, here, *why)
                return ""
        if not path and name in SETTINGS:
            hint = f"{name} is a key of {SETTINGS_FILE}, the settings of the node's runtime"
            self._at(key, here, "unknown key, ignored", hint, self._unknown)
            return ""
        known = len(self._document.findings) < _MOST_HINTS  # a file of nothing else has no hints
        hint = config_spelling.suggestion(name, path, section) if known else ""
        if config_spelling.differs_in_case(name, section):
            self._at(key, here, "unknown key; upper and lower case matter", hint)
            return next(known.name for known in section.keys if known.name.lower() == name.lower())
        if self._unknown == WARNING and nearest(name, LIMIT_KEYS):
            hint += " (--strict-config refuses unknown keys)"
        self._at(
            key,
            here,
            "unknown key, ignored" if self._unknown == WARNING else "unknown key",
            hint,
            self._unknown,
        )
        return ""

    def _place(self, path: str, node: yaml.Node) -> None:
        self._document.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)

    def _error(self, path: str, message: str, hint: str = "") -> None:
        self._document.add(ERROR, path, message, hint)

    def _at(
        self, node: yaml.Node, path: str, message: str, hint: str = "", severity: str = ERROR
    ) -> None:
        mark = node.start_mark
        source = self._document.source
        self._document.findings.append(
            ConfigFinding(severity, path, mark.line + 1, mark.column + 1, message, hint, source)
        )


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _is_list(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode)


def _found(node: yaml.Node) -> str:
    """Return what a node is, in words."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    try:
        return shown(config_yaml.plain(node))
    except NotReadableError:
        return f"the tag {printable(node.tag, 80)}"
