# SPDX-License-Identifier: Apache-2.0
"""How secrets look in texts of any format, one pattern after the other, and what takes their place.

What stays is still a file of its format: only values go.
"""

from __future__ import annotations

import re

from gpuhook.support_bundle.secret_words import REMOVED, START, WORD, is_harmless, is_path, is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[re.Match[str]], tuple[str, str]]  # the text in its place, and what was taken

_NAME = r"[A-Z_][A-Z0-9_]{1,}"
_ANY_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_QUOTE = r"\\{0,8}[\"']"  # JSON in a string of JSON has its quotes escaped
_TEXT = r"(?:\\.|(?!\3)[^\\\n])*"

_PEM = re.compile(
    r"(-----BEGIN ([A-Z0-9 ]{1,64})-----)(\\n|\n)?.*?((?:\\n|\n)?-----END \2-----|\Z)", re.DOTALL
)
# The end of a block whose beginning was cut off, at the beginning of the text.
_PEM_END = re.compile(r"\A(?:[A-Za-z0-9+/=]*\n)+(?=-----END )")
# Tokens that tell by their first characters what they are.
_TOKEN = re.compile(
    r"(?<![\w-])(?:"
    r"eyJ[\w+/=-]{8,}(?:\.[\w-]{4,}(?:\.[\w-]*)?)?"  # JSON in base64, as a JWT begins
    r"|LS0tLS1CRUdJ[A-Za-z0-9+/=]*"  # a PEM block in base64
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,20}|nvapi-[\w-]{8,}|hf_[A-Za-z0-9]{16,}"
    r"|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl[a-z]{2,5}-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{8,}|sk-[\w-]{16,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|npm_[A-Za-z0-9]{16,}"
    r"|dckr_[po]at_[\w-]{8,}|hv[bsr]\.[\w-]{8,}|AGE-SECRET-KEY-1\w+|K10[0-9a-f]{8,}::\S+"
    r"|[a-z0-9]{6}\.[a-z0-9]{16}(?![\w.-])"  # of kubeadm
    r")"
)
_HASH = re.compile(r"\$(?:[1567y]|2[abxy]|apr1|gy|argon2id?)\$[^\s:\"']{4,}")
_RANDOM = re.compile(r"(?<![\w/+.@-])(?=[a-z0-9+/]*[A-Z])[A-Za-z0-9+/]{40,}={0,2}(?![\w/+.@-])")
_URL = re.compile(r"((?<![\w+.-])[a-zA-Z][\w+.-]{0,30}://)[^\s/\"']{1,512}@")
_URL_WITH_SLASH = re.compile(
    r"((?<![\w+.-])[a-zA-Z][\w+.-]{0,30}://)[^\s/:@\"']{1,256}:(?!\d{1,5}/)[^\s@\"']{1,256}@"
)
_PROXY = re.compile(
    r"(?<![\w.:/@%+-])[\w.%+-]{1,128}:[^\s\"'@/:]{1,128}(?=@(?!sha256:)[\w.-]{1,255}:\d)"
)
_USER = re.compile(r"((?<![\w-])(?:-u|--user|--proxy-user)[ =][^\s:]{1,128}:)([^\s\"']{1,256})")
_BEARER = re.compile(r"\b((?:Bearer|Basic|Token)[ \t]{1,8})[\w+/=.~-]{8,}")
_COOKIE = re.compile(r"((?<![\w-])(?:Set-)?Cookie:[ \t]*)([^\n]+)", re.IGNORECASE)
_SIGNED = re.compile(r"([?&](?:sig|[\w-]*signature)=)([^&\s\"']+)", re.IGNORECASE)

_BLOCK = re.compile(
    rf"^([ \t]*)((?:-[ \t]+)?[\"']?{WORD}[\"']?[ \t]*:)[ \t]*[|>][-+\d]*[ \t]*\n"
    r"((?:\1[ \t]+[^\n]*\n?|[ \t]*\n)+)",
    re.IGNORECASE | re.MULTILINE,
)
_TRIPLE = re.compile(
    rf"({START}{WORD}[ \t]*=[ \t]*)(\"\"\"|''')(.*?)(\2|\Z)", re.IGNORECASE | re.DOTALL
)
_SEQUENCE = re.compile(
    rf"^([ \t]*(?:-[ \t]+)?[\"']?{WORD}[\"']?:[ \t]*\n)((?:[ \t]*-[ \t]+[^\n:]+(?:\n|\Z))+)",
    re.IGNORECASE | re.MULTILINE,
)
_LIST = re.compile(rf"({START}{WORD}[\"']?[ \t]*[:=][ \t]*\[)([^\[\]{{}}]*)(?=\])", re.IGNORECASE)
_ENTRIES = re.compile(r"(\"env\"\s*:\s*\[)([^\[\]{}]*)(?=\])", re.IGNORECASE)
_STRING = re.compile(r"([\"'])((?:\\.|(?!\1)[^\\\n])*)\1")
_QUOTED = re.compile(
    rf"({START}({WORD})[\"']?[ \t]{{0,32}}[:=][ \t]{{0,32}})([\"'])({_TEXT})\3", re.IGNORECASE
)
_ESCAPED = re.compile(
    rf"({START}({WORD})\\{{1,8}}[\"'][ \t]{{0,32}}[:=][ \t]{{0,32}})(\\{{1,8}}[\"'])"
    r"((?:(?!\3)[^\n])*)\3",
    re.IGNORECASE,
)
_CALLED = re.compile(rf"({START}({WORD})[ \t]{{1,8}})([\"'])([^\"'\n]{{4,}})\3", re.IGNORECASE)
_NUMERIC = re.compile(
    rf"({START}({WORD})[\"']?[ \t]{{0,32}}[:=][ \t]{{0,32}})(-?\d[\d.]*)(?![\w.-])", re.IGNORECASE
)
_BARE = re.compile(
    rf"^([ \t]*(?:-[ \t]+|export[ \t]+)?({WORD})[ \t]*[:=][ \t]*)([^\s#][^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
# Anywhere in a line: of a command line, a URL, a log.
_OPTION = re.compile(rf"({START}(?:({WORD})=|-({WORD})[ ]))([^\s\"',;&]+)", re.IGNORECASE)
_HEADER = re.compile(rf"({START}({WORD}):[ \t]+)([^\s\"',;&{{\[|>]+)", re.IGNORECASE)

_LISTED = re.compile(rf"([\"'])({_NAME})=((?:\\.|(?!\1)[^\\\n])*)\1")
_ITEM = re.compile(rf"^([ \t]*-[ \t]+)({_NAME})=([^\n]*)$", re.MULTILINE)
_EXPORT = re.compile(rf"^([ \t]*export[ \t]+)({_ANY_NAME})=([^\n]*)$", re.MULTILINE)
_SERVICE = re.compile(r"^([ \t]*Environment[ \t]*=)((?:[^\n\\]|\\[^\n]|\\\n)*)", re.MULTILINE)
_WORDS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s\"']+")
_PAIR = re.compile(
    rf"(name:[ \t]*[\"']?({_ANY_NAME})[\"']?[ \t]*\n[ \t]*value:[ \t]*)([^\n]*)$", re.MULTILINE
)
_PAIR_TURNED = re.compile(
    rf"(value:[ \t]*)([^\n]*)(\n[ \t]*name:[ \t]*[\"']?({_ANY_NAME})[\"']?[ \t]*)$", re.MULTILINE
)
_PAIR_OF_JSON = re.compile(
    rf"({_QUOTE}name{_QUOTE}\s*:\s*{_QUOTE}({_ANY_NAME}){_QUOTE}\s*,\s*{_QUOTE}value{_QUOTE}\s*:"
    rf"\s*)({_QUOTE})((?:(?!\3)(?:\\.|[^\n]))*)\3"
)
_PAIR_OF_JSON_TURNED = re.compile(
    rf"({_QUOTE}value{_QUOTE}\s*:\s*)({_QUOTE})((?:(?!\2)(?:\\.|[^\n]))*)"
    rf"(\2\s*,\s*{_QUOTE}name{_QUOTE}\s*:\s*{_QUOTE}({_ANY_NAME}){_QUOTE})"
)


def _variable(match: re.Match[str], name: int, value: int, replaced: str) -> tuple[str, str]:
    if is_harmless(match[name]) or not match[value].strip() or REMOVED in match[value]:
        return match[0], ""
    return replaced, f"the variable {match[name]}"


def _value(match: re.Match[str], name: str, value: str, replaced: str) -> tuple[str, str]:
    """Return a rule's answer for key and value; a plain value, or one already removed, stays."""
    if is_plain(name, value):
        return match[0], ""
    return replaced, f"a value of {name}"


def _bare(match: re.Match[str]) -> tuple[str, str]:
    value = match[3].strip()
    if value[0] in "\"'" and value[0] in value[1:]:
        return match[0], ""  # quoted, and looked at as such
    if value[0] in "{[" or re.fullmatch(r"[|>][-+\d]*", value):
        return match[0], ""  # a structure: what is in it is looked at by itself
    return _value(match, match[2], value, match[1] + REMOVED)


def _environment(match: re.Match[str]) -> tuple[str, str]:
    """Return a line of a service's variables, of which each is a word, quoted or not."""
    taken: list[str] = []

    def word(one: re.Match[str]) -> str:
        quote = one[0][0] if one[0][0] in "\"'" else ""
        name, _, value = one[0].strip("\"'").partition("=")
        if not value or is_harmless(name) or value == REMOVED:
            return one[0]
        taken.append(name)
        return f"{quote}{name}={REMOVED}{quote}"

    said = match[1] + _WORDS.sub(word, match[2])
    return said, f"the variable {', '.join(taken)}" if taken else ""


def _entries(match: re.Match[str]) -> tuple[str, str]:
    """Return the variables of a config.json that is only a part of the text."""

    def string(one: re.Match[str]) -> str:
        name, _, value = one[2].partition("=")
        kept = not value or is_harmless(name) or value == REMOVED
        return one[0] if kept else f"{one[1]}{name}={REMOVED}{one[1]}"

    return match[1] + _STRING.sub(string, match[2]), "variables of a container"


def _listed(match: re.Match[str]) -> tuple[str, str]:
    key = re.search(START + WORD, match[1], re.IGNORECASE)
    name = key[0] if key else ""

    def string(one: re.Match[str]) -> str:
        return one[0] if is_plain(name, one[2]) else f"{one[1]}{REMOVED}{one[1]}"

    return match[1] + _STRING.sub(string, match[2]), f"values of {name}"


def _sequence(match: re.Match[str]) -> tuple[str, str]:
    name = match[1].strip(" \t\n:\"'-")

    def item(one: re.Match[str]) -> str:
        return one[0] if is_plain(name, one[2]) else one[1] + REMOVED

    return match[1] + re.sub(r"([ \t]*-[ \t]+)([^\n]+)", item, match[2]), f"values of {name}"


def _block(match: re.Match[str]) -> tuple[str, str]:
    if match[3].strip() == REMOVED:
        return match[0], ""
    return f"{match[1]}{match[2]} {REMOVED}\n", f"a value of {match[2].strip(' -:')}"


def _random(match: re.Match[str]) -> tuple[str, str]:
    kinds = (str.islower, str.isdigit)
    is_one = all(any(map(kind, match[0])) for kind in kinds) and not is_path(match[0])
    return (REMOVED, "what looks like a key") if is_one else (match[0], "")


RULES: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_PEM, lambda m: (f"{m[1]}{m[3] or ''}{REMOVED}{m[4]}", f"a block {m[2]}")),
    (_PEM_END, lambda _: (f"{REMOVED}\n", "the end of a block")),
    (_TOKEN, lambda _: (REMOVED, "a token")),
    (_HASH, lambda _: (REMOVED, "the hash of a password")),
    (_USER, lambda m: (m[1] + REMOVED, "a user's password")),
    (_BEARER, lambda m: (m[1] + REMOVED, "an authorization")),
    (_COOKIE, lambda m: (m[1] + REMOVED, "a cookie")),
    (_SIGNED, lambda m: (m[1] + REMOVED, "a signature")),
    (_SERVICE, _environment),
    (_ENTRIES, _entries),
    (_LISTED, lambda m: _variable(m, 2, 3, f"{m[1]}{m[2]}={REMOVED}{m[1]}")),
    (_ITEM, lambda m: _variable(m, 2, 3, f"{m[1]}{m[2]}={REMOVED}")),
    (_EXPORT, lambda m: _variable(m, 2, 3, f"{m[1]}{m[2]}={REMOVED}")),
    (_PAIR, lambda m: _variable(m, 2, 3, m[1] + REMOVED)),
    (_PAIR_TURNED, lambda m: _variable(m, 4, 2, m[1] + REMOVED + m[3])),
    (_PAIR_OF_JSON, lambda m: _variable(m, 2, 4, m[1] + m[3] + REMOVED + m[3])),
    (_PAIR_OF_JSON_TURNED, lambda m: _variable(m, 5, 3, m[1] + m[2] + REMOVED + m[4])),
    (_RANDOM, _random),
)

# Of a text in which there is an @.
ADDRESSES: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_URL, lambda m: (f"{m[1]}{REMOVED}@", "credentials of a URL")),
    (_URL_WITH_SLASH, lambda m: (f"{m[1]}{REMOVED}@", "credentials of a URL")),
    (_PROXY, lambda _: (REMOVED, "credentials of a URL")),
)
# By the names of secrets: those that go over several lines, and those of one line.
NAMED: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_BLOCK, _block),
    (_TRIPLE, lambda m: _value(m, m[1].strip(" \t="), m[3], f"{m[1]}{m[2]}{REMOVED}{m[2]}")),
    (_LIST, _listed),
    (_SEQUENCE, _sequence),
)
OF_A_LINE: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_QUOTED, lambda m: _value(m, m[2], m[4], f"{m[1]}{m[3]}{REMOVED}{m[3]}")),
    (_ESCAPED, lambda m: _value(m, m[2], m[4], f"{m[1]}{m[3]}{REMOVED}{m[3]}")),
    (_CALLED, lambda m: _value(m, m[2], m[4], f"{m[1]}{m[3]}{REMOVED}{m[3]}")),
    (_NUMERIC, lambda m: _value(m, m[2], m[3], f"{m[1]}0")),
    (_BARE, _bare),
    (_OPTION, lambda m: _value(m, m[2] or m[3], m[4], m[1] + REMOVED)),
    (_HEADER, lambda m: _value(m, m[2], m[3], m[1] + REMOVED)),
)
