# SPDX-License-Identifier: Apache-2.0
"""Secrets taken out of texts and documents, and a list of what was taken.

What stays is still a file of its format: only values go. Paths, true, false and small numbers are
no secrets, whatever their key is called.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from gpuhook.support_bundle.secret_patterns import ADDRESSES, NAMED, OF_A_LINE, RULES
from gpuhook.support_bundle.secret_words import MARK, REMOVED, is_harmless, is_plain, is_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.support_bundle.secret_patterns import Rule

_NAME = re.compile(r"[A-Z_][A-Z0-9_]{1,}")
_ANY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ENVIRONMENTS = ("env", "envs", "environment")
_SECRET = re.compile(r"^[ \t-]*kind:[ \t]*[\"']?Secret[\"']?[ \t]*$", re.MULTILINE)
_SECRET_OF_JSON = re.compile(r"\\*\"kind\\*\"\s*:\s*\\*\"Secret\\*\"")
_DATA = re.compile(r"(\\*\"(?:data|stringData)\\*\"\s*:\s*)\{[^{}]+\}")
_MEMBERS = ("data", "stringData")
# The words of JSON: a string that is a key has the group.
_TOKENS = re.compile(r"\"(?:[^\"\\]|\\.)*\"(\s*:)?|[^\s\[\]{},:\"]+")
_BINARY = re.compile(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


_USERS = "/etc/passwd"
_SERVICES = "/etc/nsswitch.conf"  # who is asked for users: `passwd: files` is no password


class Secrets:
    """Takes secrets out of one thing after the other; `taken` counts (where, what)."""

    def __init__(self) -> None:
        self.taken: Counter[tuple[str, str]] = Counter()
        self._clean: set[str] = set()

    def out_of_content(self, content: bytes, where: str) -> bytes:
        """Return a file's content without its secrets; a program or a library is left as it is."""
        if b"\0" in content and _BINARY.search(content):
            return content
        if where.endswith(_SERVICES):
            return content
        text = content.decode("utf-8", "surrogateescape")
        if where.endswith(_USERS):
            text = self._without_people(text, where)
        if "\0" in text:  # a command line, or an environment, as the kernel has it
            found = "\0".join(self.out_of_document(text.split("\0"), where))
        else:
            found = self.out_of_text(text, where)
        return found.encode("utf-8", "surrogateescape")

    def _without_people(self, text: str, where: str) -> str:
        """Return passwd(5) without its comments: who somebody is, and how to call them."""
        lines = [line.split(":") for line in text.split("\n")]
        for fields in lines:
            if len(fields) == 7 and fields[4]:
                fields[4] = ""
                self.taken[where, "a comment on a user"] += 1
        return "\n".join(":".join(fields) for fields in lines)

    def out_of_text(self, text: str, where: str) -> str:
        """Return a text of any format without its secrets."""
        if text in self._clean:  # documents say the same paths and words again and again
            return text
        left = self._without_secrets(text, where)
        if left == text:
            self._clean.add(text)
        return left

    def _without_secrets(self, text: str, where: str) -> str:
        if text.lstrip()[:1] in ("{", "["):
            text = self._out_of_json(text, where)
        if "kind" in text:
            text = self._without_secret_objects(text, where)
        for pattern, rule in (*(ADDRESSES if "@" in text else ()), *RULES):
            text = self._ruled(pattern, rule, text, where)
        if not MARK.search(text):
            return text
        for pattern, rule in NAMED:
            text = self._ruled(pattern, rule, text, where)
        lines = text.split("\n")
        return "\n".join(
            self._out_of_line(line, where) if MARK.search(line) else line for line in lines
        )

    def _out_of_line(self, line: str, where: str) -> str:
        for pattern, rule in OF_A_LINE:
            line = self._ruled(pattern, rule, line, where)
        return line

    def out_of_document(self, value: Any, where: str) -> Any:
        """Return a JSON document without its secrets."""
        if isinstance(value, dict):
            return self._out_of_object(value, where)
        if isinstance(value, list):
            return [
                self._out_of_item(one, value[index - 1] if index else None, where)
                for index, one in enumerate(value)
            ]
        if isinstance(value, str):
            return self._out_of_item(value, None, where)
        return value

    def _out_of_object(self, found: dict[Any, Any], where: str) -> dict[Any, Any]:
        name, value = found.get("name"), found.get("value")
        if len(found) == 2 and isinstance(name, str) and isinstance(value, str):
            return {**found, "value": self._variable(name, value, where)}
        told = {key: self._out_of_key(str(key), one, where) for key, one in found.items()}
        if found.get("kind") == "Secret":
            for key in _MEMBERS:
                if isinstance(found.get(key), dict) and found[key]:
                    told[key] = {one: self._taken(where, "of a Secret") for one in found[key]}
        return told

    def _out_of_key(self, key: str, value: Any, where: str) -> Any:
        if is_secrets(key):
            return self._out_of_secret(key, value, where)
        if key.lower() in _ENVIRONMENTS:
            if isinstance(value, dict):
                return {
                    name: self._variable(str(name), one, where)
                    if isinstance(one, str)
                    else self.out_of_document(one, where)
                    for name, one in value.items()
                }
            if isinstance(value, list):
                return [self._out_of_entry(one, where) for one in value]
        return self.out_of_document(value, where)

    def _out_of_secret(self, key: str, value: Any, where: str) -> Any:
        """Return what stands under a secret's name; of a list or an object what is right in it."""
        if isinstance(value, dict):
            return {
                name: self.out_of_document(one, where)
                if isinstance(one, (dict, list))
                else self._out_of_secret(key, one, where)
                for name, one in self._out_of_object(value, where).items()
            }
        if isinstance(value, list):
            return [
                self.out_of_document(one, where)
                if isinstance(one, (dict, list))
                else self._out_of_secret(key, one, where)
                for one in value
            ]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (isinstance(value, str) or is_number) or is_plain(key, str(value)):
            return value
        told = self._taken(where, f"a value of {key}")
        return 0 if is_number else told

    def _out_of_entry(self, value: Any, where: str) -> Any:
        """Return an entry of a list of variables, however its name is written."""
        name, is_variable, text = value.partition("=") if isinstance(value, str) else ("", "", "")
        if is_variable and _ANY_NAME.fullmatch(name):
            return f"{name}={self._variable(name, text, where)}"
        return self.out_of_document(value, where)

    def _out_of_item(self, value: Any, before: Any, where: str) -> Any:
        """Return an item of a list: after an option such as --token, it is that one's value."""
        if not isinstance(value, str):
            return self.out_of_document(value, where)
        option = before.lstrip("-") if isinstance(before, str) and before[:1] == "-" else ""
        if option and is_secrets(option) and not is_plain(option, value):
            return self._taken(where, f"a value of {option}")
        name, is_variable, text = value.partition("=")
        if is_variable and _NAME.fullmatch(name) and not is_harmless(name):
            return f"{name}={self._variable(name, text, where)}"
        return self.out_of_text(value, where)

    def _variable(self, name: str, value: str, where: str) -> str:
        if not value or value == REMOVED or not _ANY_NAME.fullmatch(name):
            return value
        if is_harmless(name):
            return self.out_of_text(value, where)
        return self._taken(where, f"the variable {name}")

    def _out_of_json(self, text: str, where: str) -> str:
        """Return the text of a JSON document without its secrets, on the lines that they were."""
        inner = Secrets()
        try:
            document = json.loads(text)
            clean = inner.out_of_document(document, where)
            values = list(zip(_values(document), _values(clean), strict=True))
        except (ValueError, RecursionError):
            return text
        if not inner.taken:
            return text
        self.taken += inner.taken
        tokens = [one for one in _TOKENS.finditer(text) if not one[1]]
        if len(tokens) != len(values):  # an object has a key twice: only the last is in a document
            return json.dumps(clean, indent=1)
        parts, end = [], 0
        for token, (old, new) in zip(tokens, values, strict=True):
            if old != new:
                parts += [text[end : token.start()], json.dumps(new)]
                end = token.end()
        return "".join(parts) + text[end:]

    def _without_secret_objects(self, text: str, where: str) -> str:
        if _SECRET_OF_JSON.search(text):
            text = self._ruled(_DATA, lambda m: (m[1] + "{}", "data of a Secret"), text, where)
        parts = re.split(r"(^---[^\n]*\n)", text, flags=re.MULTILINE)
        return "".join(
            f"# {self._taken(where, 'an object of kind Secret')}\n" if _SECRET.search(one) else one
            for one in parts
        )

    def _taken(self, where: str, what: str) -> str:
        self.taken[where, what] += 1
        return REMOVED

    def _ruled(self, pattern: re.Pattern[str], rule: Rule, text: str, where: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            said, what = rule(match)
            if said != match[0]:
                self.taken[where, what] += 1
            return said

        return pattern.sub(replaced, text)


def _values(document: Any) -> Iterator[Any]:
    """Yield what is no object and no list, in the order of the text."""
    if isinstance(document, dict):
        for one in document.values():
            yield from _values(one)
    elif isinstance(document, list):
        for one in document:
            yield from _values(one)
    else:
        yield document
