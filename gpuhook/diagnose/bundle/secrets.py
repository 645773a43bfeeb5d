# SPDX-License-Identifier: Apache-2.0
"""Secrets taken out of texts and documents, and a list of what was taken.

What stays is still a file of its format: only values go. Paths, true, false and numbers are no
secrets, whatever their key is called.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[re.Match[str]], tuple[str, str]]  # the text in its place, and what was taken

REMOVED = "REMOVED"
# Variables of containers and daemons whose values tell of GPUs; those of others are nobody's.
_HARMLESS = re.compile(
    r"NVIDIA_\w+|CUDA_\w+|GPUHOOK_\w+|NCCL_\w+|__NV\w*|__GLX_\w+|PATH|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|HOME|HOSTNAME|LANG|LC_ALL|TERM|NODE_NAME|DEVICE_\w+_STRATEGY|MIG_STRATEGY|CONFIG_FILE"
    r"|PASS_DEVICE_SPECS|FAIL_ON_INIT_ERROR|MPS_ROOT|KUBERNETES_SERVICE_\w+"
)
# Every pattern takes a time that grows with the length of its text, whatever is in it: a word is
# tried where it begins, and spaces are those of one line.
_START = r"(?<![\w.-])"
_WORD = (
    r"(?:[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|client[_-]key[_-]data|[_-]authority[_-]data|certificate[_-]data"
    r"|session[_-]?key|bearer)[\w.-]{0,64}|-{0,2}auth)"
)
_KEY = re.compile(_WORD, re.IGNORECASE)
_NAME = r"[A-Z_][A-Z0-9_]{1,}"
_PLAIN = re.compile(r"(?:true|false|null|none|~|-?[\d.]+|/[^\s]*|[{\[|>].*|)", re.IGNORECASE)

_PEM = re.compile(r"(-----BEGIN ([A-Z0-9 ]{1,64})-----).*?(-----END \2-----|\Z)", re.DOTALL)
# The end of a block whose beginning was cut off, at the beginning of the text.
_PEM_END = re.compile(r"\A(?:[A-Za-z0-9+/=]*\n)+(?=-----END )")
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?")
_URL = re.compile(r"((?<![\w+.-])[a-zA-Z][\w+.-]{0,30}://)[^\s/@\"']{1,512}@")
_BEARER = re.compile(r"\b((?:Bearer|Basic)[ \t]{1,8})[\w+/=.~-]{8,}")
_QUOTED = re.compile(
    rf"({_START}{_WORD}[\"']?[ \t]{{0,32}}[:=][ \t]{{0,32}})([\"'])((?:\\.|(?!\2)[^\\\n])*)\2",
    re.IGNORECASE,
)
_BARE = re.compile(
    rf"^([ \t]*(?:-[ \t]+|export[ \t]+)?{_WORD}[ \t]*[:=][ \t]*)([^\s\"'#][^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
# Anywhere in a line: of a command line, a URL, a log.
_OPTION = re.compile(rf"({_START}(?:{_WORD}=|-{_WORD}[ ]))([^\s\"',;&]+)", re.IGNORECASE)
_LISTED = re.compile(rf"([\"'])({_NAME})=((?:\\.|(?!\1)[^\\\n])*)\1")
_ITEM = re.compile(rf"^([ \t]*-[ \t]+|Environment=|export[ \t]+)({_NAME})=([^\n]*)$", re.MULTILINE)
_PAIR = re.compile(
    rf"(name:[ \t]*[\"']?({_NAME})[\"']?[ \t]*\n[ \t]*value:[ \t]*)([^\n]*)$", re.MULTILINE
)
_SECRET = re.compile(r"^kind:[ \t]*[\"']?Secret[\"']?[ \t]*$", re.MULTILINE)


class Secrets:
    """Takes secrets out of one thing after the other; `taken` counts (where, what)."""

    def __init__(self) -> None:
        self.taken: Counter[tuple[str, str]] = Counter()
        self._clean: set[str] = set()

    def out_of_content(self, content: bytes, where: str) -> bytes:
        """Return a file's content without its secrets; a program or a library is left as it is."""
        if b"\0" in content:
            return content
        text = content.decode("utf-8", "surrogateescape")
        return self.out_of_text(text, where).encode("utf-8", "surrogateescape")

    def out_of_text(self, text: str, where: str) -> str:
        """Return a text of any format without its secrets."""
        if text in self._clean:  # documents say the same paths and words again and again
            return text
        left = self._without_secret_objects(text, where) if "kind:" in text else text
        for pattern, rule in _RULES:
            left = self._ruled(pattern, rule, left, where)
        if left == text:
            self._clean.add(text)
        return left

    def out_of_document(self, value: Any, where: str) -> Any:
        """Return a JSON document without its secrets."""
        if isinstance(value, dict):
            return {key: self._out_of_key(key, one, where) for key, one in value.items()}
        if isinstance(value, list):
            return [
                self._out_of_item(one, value[index - 1] if index else None, where)
                for index, one in enumerate(value)
            ]
        if isinstance(value, str):
            return self._out_of_item(value, None, where)
        return value

    def _out_of_key(self, key: str, value: Any, where: str) -> Any:
        if isinstance(value, str) and _KEY.fullmatch(key) and not _PLAIN.fullmatch(value):
            return self._taken(where, f"a value of {key}")
        return self.out_of_document(value, where)

    def _out_of_item(self, value: Any, before: Any, where: str) -> Any:
        """Return an item of a list: after an option such as --token, it is that one's value."""
        if not isinstance(value, str):
            return self.out_of_document(value, where)
        option = before.lstrip("-") if isinstance(before, str) and before[:1] == "-" else ""
        if option and _KEY.fullmatch(option) and not _PLAIN.fullmatch(value):
            return self._taken(where, f"a value of {option}")
        name, is_variable, text = value.partition("=")
        if is_variable and re.fullmatch(_NAME, name) and not _HARMLESS.fullmatch(name):
            return f"{name}={self._taken(where, f'the variable {name}')}" if text else value
        return self.out_of_text(value, where)

    def _without_secret_objects(self, text: str, where: str) -> str:
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


def _variable(replaced: Callable[[re.Match[str]], str]) -> Rule:
    """Return a rule for NAME=value: the second group is the name, the third the value."""

    def rule(match: re.Match[str]) -> tuple[str, str]:
        if _HARMLESS.fullmatch(match[2]) or not match[3].strip():
            return match[0], ""
        return replaced(match), f"the variable {match[2]}"

    return rule


def _value(match: re.Match[str], group: int, replaced: str) -> tuple[str, str]:
    """Return a rule's answer for key and value; a plain value, or one already removed, stays."""
    value = match[group].strip().rstrip(",")
    if _PLAIN.fullmatch(value) or REMOVED in value:
        return match[0], ""
    key = re.search(_START + _WORD, match[1], re.IGNORECASE)
    return replaced, f"a value of {key[0] if key else 'a secret'}"


_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_PEM, lambda m: (f"{m[1]}\n{REMOVED}\n{m[3]}", f"a block {m[2]}")),
    (_PEM_END, lambda _: (f"{REMOVED}\n", "the end of a block")),
    (_JWT, lambda _: (REMOVED, "a token")),
    (_URL, lambda m: (f"{m[1]}{REMOVED}@", "credentials of a URL")),
    (_BEARER, lambda m: (m[1] + REMOVED, "an authorization")),
    (_LISTED, _variable(lambda m: f"{m[1]}{m[2]}={REMOVED}{m[1]}")),
    (_ITEM, _variable(lambda m: f"{m[1]}{m[2]}={REMOVED}")),
    (_PAIR, _variable(lambda m: m[1] + REMOVED)),
    (_QUOTED, lambda m: _value(m, 3, f"{m[1]}{m[2]}{REMOVED}{m[2]}")),
    (_BARE, lambda m: _value(m, 2, m[1] + REMOVED)),
    (_OPTION, lambda m: _value(m, 2, m[1] + REMOVED)),
)
