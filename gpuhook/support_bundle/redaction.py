# SPDX-License-Identifier: Apache-2.0
"""Apply the allow-list: keep the values of listed keys in contents and documents.

A text without unlisted keys is not changed. Otherwise it is written again from the remaining
values, without comments. A text that cannot be parsed keeps its structure and the listed words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from gpuhook.host import bounded_yaml
from gpuhook.support_bundle.allow_list import (
    COMMAND,
    COMMANDS,
    ENVIRONMENTS,
    JSON,
    LINES,
    NAMED,
    OPTIONS,
    PATHS,
    TOML,
    VARIABLES,
    WHOLE,
    WORDS,
    YAML,
    FileKind,
    kind_of,
)

LEFT_OUT = "left out"
# A name that users choose (of a runtime, a resource), and an unlisted key.
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}")
_KEY = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}")
_VALUE = re.compile(r"[^\x00-\x1f]{0,1024}")
_LABEL = re.compile(
    r"(?:nvidia\.com|(?:beta\.)?amd\.com|feature\.node\.kubernetes\.io)/[\w.-]{1,63}"
)
_CREDENTIALS = re.compile(r"://[^/\s]*@|[^\s:/@]+:[^\s/@]+@[\w.-]+:\d|-----BEGIN ")
_PATH = re.compile(r"/(?!home/|root/)[\w./@+~-]*")
_COMMENT = re.compile(r"(?:^|\s)#.", re.MULTILINE)
_COMMENTS = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_TOKEN = re.compile(r"[^\s{}\[\]:,.=\"']+")
_LINE = re.compile(r"[ \t]*([\w.-]+)[ \t]*[=:][ \t]*(.*)|[ \t]*\[(\w+)\][ \t]*")
_DOCUMENT = re.compile(r"^---[ \t]*\n", re.MULTILINE)
_BROKEN = (ValueError, RecursionError, yaml.YAMLError, TOMLKitError)
_MOST_LEVELS = 100  # of values in a document
_NUMBER = re.compile(r"[0-9]{1,3}")
_LITERALS = frozenset(
    ("true", "false", "null", "---", "nvidia", "gpuhook", "runc", "crun", "io", "grpc", "v1", "cri")
)


class AllowList:
    """Redacts contents and documents; `kept` and `removed` count keys by (where, key)."""

    def __init__(self) -> None:
        self.kept: Counter[tuple[str, str]] = Counter()
        self.removed: Counter[tuple[str, str]] = Counter()

    def content(self, path: str, content: bytes, where: str) -> bytes | None:
        """Return the redacted content of a file, None for an unlisted file."""
        kind = kind_of(path)
        if kind is None:
            return None
        if kind.form == WHOLE:
            return content
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
            return self._words(text, kind, where).encode("latin-1")
        return self.text(text, kind, where).encode()

    def text(self, text: str, kind: FileKind, where: str) -> str:
        """Return the redacted text of a file of that kind."""
        if kind.form == COMMAND:
            return "\0".join(self._arguments(text.split("\0"), where, "argv"))
        if kind.parts is not None:
            return self._parts(text, kind.parts, where)
        if kind.form == LINES:
            return "\n".join(self._line(line, kind, where) for line in text.split("\n"))
        return self._structured(text, kind, where)

    def _structured(self, text: str, kind: FileKind, where: str) -> str:
        try:
            documents = _parsed(text, kind)
            _require_shallow(documents)
        except _BROKEN:
            return self._words(text, kind, where)
        left = [self.document(one, kind.keys, where) for one in documents]
        if left == documents:
            # If only whole-line comments are removed, the lines keep their numbers.
            bare = text if kind.form == JSON else _COMMENTS.sub("#", text)
            if kind.form == JSON or (not _COMMENT.search(bare) and _is_same(bare, documents, kind)):
                return bare
        return "---\n".join(_written(one, kind) for one in left)

    def document(self, value: Any, keys: frozenset[str], where: str, above: str = "") -> Any:
        """Return a document with the values of these keys; `above` is the key of the document."""
        if isinstance(value, dict):
            return self._object(value, keys, where, above)
        if isinstance(value, list):
            if above in COMMANDS:
                return self._arguments(value, where, above)
            if above in ENVIRONMENTS:
                return [self._variable(one, where) for one in value]
            return [self.document(one, keys, where, above) for one in value]
        is_text = isinstance(value, str)
        is_fit = not is_text or (_VALUE.fullmatch(value) and not _CREDENTIALS.search(value))
        return value if is_fit and (above or value is None) else self._left_out(where, above)

    def _object(
        self, found: dict[Any, Any], keys: frozenset[str], where: str, above: str
    ) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in found.items():
            name = str(key)
            if above in ENVIRONMENTS:
                result[name] = self._variable(f"{name}={value}", where).partition("=")[2]
                continue
            is_listed = name in keys or (above in NAMED and _NAME.fullmatch(name) is not None)
            is_listed = is_listed or (above in PATHS and _PATH.fullmatch(name) is not None)
            is_listed = is_listed or (above == "labels" and _LABEL.fullmatch(name) is not None)
            if is_listed:
                self.kept[where, name] += 1
                result[key] = self.document(value, keys, where, name)
            elif _KEY.fullmatch(name) and above not in ("labels", "annotations"):
                result[key] = self._left_out(where, name)
            else:
                result[f"{LEFT_OUT} {len(result)}"] = self._left_out(where, "keys of other names")
        return result

    def _left_out(self, where: str, key: str) -> str:
        self.removed[where, key or "values without a key"] += 1
        return LEFT_OUT

    def _variable(self, entry: Any, where: str) -> str:
        name, _, value = str(entry).partition("=")
        if not VARIABLES.fullmatch(name):
            return self._left_out(where, "variables") + "="
        return f"{name}={self.document(value, frozenset(), where, name)}"

    def _arguments(self, words: list[Any], where: str, key: str) -> list[str]:
        """Return a command with its paths and the values of listed options."""
        result: list[str] = []
        before = ""
        for number, one in enumerate(words):
            word = str(one)
            option, equals, value = word.partition("=")
            name = option.lstrip("-")
            if word.startswith("-"):
                is_kept = name in OPTIONS and _CREDENTIALS.search(value) is None
            elif before:
                is_kept = before in OPTIONS and _CREDENTIALS.search(word) is None
            else:
                is_kept = not word or word in WORDS or _PATH.fullmatch(word) is not None
                is_kept = is_kept or (number == 0 and _program_of(word))
            before = name if word.startswith("-") and not equals else ""
            result.append(word if is_kept else self._left_out(where, f"words of {key}"))
        return result

    def _parts(self, text: str, parts: re.Pattern[str], where: str) -> str:
        left = "\n".join(parts.findall(text))
        self.removed[where, "the rest of the text"] += 1
        return left + "\n"

    def _line(self, line: str, kind: FileKind, where: str) -> str:
        found = _LINE.fullmatch(line)
        if found is None or (found[1] or found[3]) not in kind.keys:
            if line.strip():
                self.removed[where, found[1] if found and found[1] else "other lines"] += 1
            return ""
        if found[1] and found[1].startswith(("Exec", "KUBELET")):
            words = self._arguments(found[2].strip("\"'").split(" "), where, found[1])
            return (
                f'{found[1]}="{" ".join(words)}"'
                if '"' in line
                else f"{found[1]}={' '.join(words)}"
            )
        self.kept[where, found[1] or found[3]] += 1
        return line

    def _words(self, text: str, kind: FileKind, where: str) -> str:
        """Return a text with crosses in place of unlisted words."""

        def word(found: re.Match[str]) -> str:
            if found[0] in kind.keys or found[0] in _LITERALS or _NUMBER.fullmatch(found[0]):
                return found[0]
            if found[0].rpartition("/")[2] in WORDS and _PATH.fullmatch(found[0]):
                return found[0]
            self.removed[where, "words of a text that cannot be parsed"] += 1
            return "x" * len(found[0])

        return _TOKEN.sub(word, text)


def _parsed(text: str, kind: FileKind) -> list[Any]:
    """Return the documents of a text. Raises _BROKEN for invalid text and for duplicate keys."""
    if kind.form == JSON:
        found = [json.loads(text, object_pairs_hook=_object_of)]
    elif kind.form == TOML:
        found = [tomlkit.parse(text).unwrap()]
    else:
        parts = [part for part in _DOCUMENT.split(text) if part.strip()]
        found = [bounded_yaml.document(part.encode(), 8 << 20) for part in parts]
    if not all(isinstance(one, dict) for one in found):
        raise ValueError("not an object")
    return found


def _require_shallow(found: list[Any]) -> None:
    """Raise ValueError for documents that are nested more deeply than any configuration."""
    level = found
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _program_of(word: str) -> bool:
    """Return whether the first word of a process is a program; k3s has its title there."""
    program, *rest = word.split() or [""]
    is_known = program in WORDS or _PATH.fullmatch(program) is not None
    return is_known and all(one in WORDS for one in rest)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a duplicate key")
    return found


def _is_same(text: str, documents: list[Any], kind: FileKind) -> bool:
    try:
        return _parsed(text, kind) == documents
    except _BROKEN:
        return False


def _written(document: Any, kind: FileKind) -> str:
    if kind.form == JSON:
        return json.dumps(document, indent=1) + "\n"
    if kind.form == YAML:
        return yaml.safe_dump(document, sort_keys=False, width=1 << 20)
    return tomlkit.dumps(document)
