# SPDX-License-Identifier: Apache-2.0
"""CDI spec files, read from and written as YAML or JSON.

Reading follows CDI's own decoder: a scalar in the place of a string keeps its spelling (a device
may be called 0 or 0:1 without quotes), and a duplicate key is an error, also a merged one. A scalar
that this decoder would change (00, 1e3, yes) is an error: it must have quotes.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import Any

import yaml

from gpuhook.cdi.hot import compile as compiler
from gpuhook.errors import fault
from gpuhook.host import bounded_yaml, documents
from gpuhook.host.error_text import needs_root
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec

FORMATS = ("yaml", "json")
# Two escapes of JSON for one character, or an escaped backslash.
_PAIR = re.compile(r"(\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2}|\\\\")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NUMBERS_AND_FLAGS = frozenset((
    "major", "minor", "fileMode", "uid", "gid", "timeout", "additionalGids",
    "enableCMT", "enableMBM", "enableMonitoring",
))  # fmt: skip
# Scalars without quotes that go-yaml reads as flags, numbers and dates, and those of them that it
# writes as they were. Source: its resolve.go and decode_test.go; strconv.FormatFloat.
_FLAG = r"[yYnN]|[yY]es|YES|[nN]o|NO|[tT]rue|TRUE|[fF]alse|FALSE|[oO]n|ON|[oO]ff|OFF"
_DECIMAL = r"(\d[\d_]*(\.[\d_]*)?|\.[\d_]+)([eE][-+]?\d+)?"
_NUMBER = rf"[-+]?(0[xX][\da-fA-F_]+|0[oObB][\d_]+|{_DECIMAL}|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
_DATE = r"\d{4}-\d\d?-\d\d?([Tt ].*)?"
_READ_AS_ANOTHER_TYPE = re.compile(f"{_FLAG}|{_NUMBER}|{_DATE}", re.ASCII)
_SHORT_FRACTION = r"-?([1-9]\d{0,4}\.|0\.[1-9])(\d{0,5}[1-9])?(?<!\.)"
_SAME = re.compile(rf"true|false|0|-?[1-9]\d{{0,17}}|{_SHORT_FRACTION}", re.ASCII)
_OCTAL = re.compile("0o[0-7]{1,20}")
_TEXT_TAG = "tag:yaml.org,2002:str"
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value")
)
_CURE = "choose a path on a writable file system with free space"
_MAX_VALUES = 1_000_000  # each use of an alias is counted
_MAX_DEPTH = 50


def read(path: str) -> Spec:
    """Return the valid spec in the file `path`, by its name JSON or YAML.

    Raises GH1106 to GH1109 for a broken spec, GH1110 for an unreadable file.
    """
    try:
        return compiler.checked(parser(path), path)
    except OSError as error:
        raise fault("GH1110", path=path, reason=error.strerror or error) from error


def parser(path: str) -> compiler.Parser:
    """Return the parser for a spec file of this name."""
    return compiler.parse_json if path.endswith(".json") else parse_yaml


def compile_specs(*paths: str) -> None:
    """Compile specs of the node for the wrapper, and for this command.

    A file that was removed meanwhile is left out.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            compiler.compile_with(parser(path), path, os.stat(path))


def document(spec: Spec, fmt: str) -> str:
    """Return the text of `spec` in the format "yaml" or "json", its keys in their own order.

    Raises GH1106 for text that is not Unicode.
    """
    try:
        text = _text(spec, fmt)
        text.encode()
    except UnicodeEncodeError as error:
        reason = "it has text that is not UTF-8"
        raise fault("GH1106", path=spec.get("kind", "-"), pointer="/", reason=reason) from error
    return text


def _text(spec: Spec, fmt: str) -> str:
    if fmt == "json":
        return _PAIR.sub(_character, documents.json_text(spec))
    return documents.yaml_text(spec, _SpecDumper, explicit_start=True, width=4096)


def _character(escape: re.Match[str]) -> str:
    """Return the character of two escapes, which YAML lacks; a backslash as it is."""
    return escape[0] if escape[1] is None else str(json.loads(f'"{escape[0]}"'))


def write(spec: Spec, path: str, fmt: str) -> None:
    """Write `spec` to the file `path` atomically, with mode 0644; make missing directories.

    Raises GH1111; an old file is untouched then.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o755, exist_ok=True)
        files.replace(path, document(spec, fmt).encode(), mode=0o644)
    except FileExistsError as error:
        reason = f"{error.filename} is not a directory"
        raise fault("GH1111", path=path, reason=reason, cure=_CURE) from error
    except OSError as error:
        cure = _CURE
        if needs_root(error):
            cure = "run the command as root (sudo), or choose a path that this user can write to"
        raise fault("GH1111", path=path, reason=error.strerror or error, cure=cure) from error


class _SpecDumper(_Dumper):  # type: ignore[misc,valid-type]  # chosen at run time
    """Writes every value in full, without anchors; short lists of words on one line."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Return True: a value that occurs twice is written twice."""
        return True


def _text_node(dumper: Any, text: str) -> yaml.Node:
    # YAML 1.1 and 1.2 readers disagree on numbers: 0:1, 1e3, 0o17; and on y.
    head = text.lstrip("+-.")[:1]  # "" is in every string, so that is quoted too
    is_quoted = head in "0123456789" or _READ_AS_ANOTHER_TYPE.fullmatch(text)
    style = "'" if is_quoted else None
    node: yaml.Node = dumper.represent_scalar(_TEXT_TAG, text, style=style)
    return node


def _list_node(dumper: Any, items: list[object]) -> yaml.Node:
    flow = all(isinstance(item, str) and len(item) < 12 for item in items)
    node: yaml.Node = dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flow)
    return node


_SpecDumper.add_representer(str, _text_node)
_SpecDumper.add_representer(list, _list_node)


def parse_yaml(data: bytes, path: str) -> Any:
    """Return the value of a YAML text as CDI reads it; GH1109 with line and column if broken."""
    loader = _Loader(data)
    try:
        bounded_yaml.require_bounded(data)
        node = loader.get_single_node()
        return _Reader(loader, path).value(node) if node is not None else None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line, column, reason = bounded_yaml.place_and_reason(error)
        place = f"line {line}, column {column}" if line else "YAML"
        raise fault("GH1109", path=path, place=place, reason=reason) from error
    finally:
        loader.dispose()


class _Reader:
    """Turns the nodes of a YAML document into values, and limits their number: aliases multiply."""

    def __init__(self, loader: Any, path: str) -> None:
        self._loader = loader
        self._path = path
        self._values = 0

    def value(self, node: yaml.Node, field: str = "", depth: int = 0) -> Any:
        """Return the value of `node`, the content of the object field `field`."""
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise self._fault(node, "too many or too deeply nested values (aliases?)")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, field, depth + 1) for item in node.value]
        if node.tag == "tag:yaml.org,2002:null":
            return None
        if field in _NUMBERS_AND_FLAGS:
            return self._number(node)
        return self._text(node)

    def _number(self, node: Any) -> Any:
        if not node.style and ":" in node.value:  # PyYAML reads 1:30 as 90
            raise self._fault(node, f"{node.value!r} is not a number")
        if not node.style and _OCTAL.fullmatch(node.value):  # for PyYAML it is text
            return int(node.value, 8)
        return bounded_yaml.value_of(self._loader.construct_object, node)

    def _text(self, node: Any) -> str:
        """Return the text of a scalar as it is written, unless CDI's decoder reads another one."""
        text: str = node.value
        if node.style:
            is_same = node.tag == _TEXT_TAG
        else:
            is_same = node.tag in _PLAIN_TAGS and (
                _SAME.fullmatch(text) is not None or not _READ_AS_ANOTHER_TYPE.fullmatch(text)
            )
        if not is_same:
            raise self._fault(node, f"{text!r} is read as another type: write it in quotes")
        return text

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        self._check_keys(node.value)
        if any(key.value == "<<" for key, _ in node.value):
            self._loader.flatten_mapping(node)
            self._check_keys(node.value)
        return {self._text(key): self.value(item, key.value, depth + 1) for key, item in node.value}

    def _check_keys(self, pairs: list[tuple[yaml.Node, yaml.Node]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if not isinstance(key, yaml.ScalarNode):
                raise self._fault(key, "a key is not a string")
            if key.value in seen and key.value != "<<":
                raise self._fault(key, f"the key {key.value!r} occurs twice")
            seen.add(key.value)

    def _fault(self, node: yaml.Node, reason: str) -> Exception:
        mark = node.start_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        return fault("GH1109", path=self._path, place=place, reason=reason)
