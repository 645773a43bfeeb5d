# SPDX-License-Identifier: Apache-2.0
"""JSON through the C accelerator of the standard library, without importing `json`.

HOT: `import json` costs 5 ms, as it imports `re`; `_json` costs 0.1. Both agree on what is valid.
Where the accelerator is not what we know, `json` does the work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # another implementation of Python, or another CPython than we know
    make_scanner = None  # type: ignore[assignment,misc]

_SPACE = " \t\n\r"
_CONSTANTS = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Number:
    """A number with a fraction or an exponent, kept as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class _Plain:
    """The attributes that the C scanner asks of a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float: type[object] = float
    parse_int = int
    parse_constant = _CONSTANTS.__getitem__


class _Exact(_Plain):
    parse_float: type[object] = Number


def loads(data: bytes, *, exact: bool = False) -> Any:
    """Return the value of a JSON document; raises ValueError that says where it is broken.

    With `exact`, fractions become Numbers, so that a document can be written again without loss.
    Bytes that are not UTF-8 are kept as surrogate escapes, which `dumps` turns back.
    """
    text = data.decode("utf-8", "surrogateescape")
    context = _Exact if exact else _Plain
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        value, end = _scanner(context)(text, start)
    except StopIteration as stop:
        raise ValueError(_place(text, stop.value, "a value is expected")) from None
    except SystemError:
        # The C scanner leaves its error to json.decoder, and says nothing if that is not loaded.
        raise ValueError(_reason(text)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text[end:].strip(_SPACE):
        raise ValueError(_place(text, end, "there is more behind the value"))
    return value


def _reason(text: str) -> str:
    """Return what is wrong with a broken document, in the words of the standard library."""
    import json

    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return "it cannot be read"


def dumps(value: object) -> bytes:
    """Return the JSON document of `value`, in one line."""
    text = _encoded(value, ascii_only=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # A lone surrogate that the source wrote as an escape: only an escape can say it.
        return _encoded(value, ascii_only=True).encode("ascii")


def _scanner(context: type[_Plain]) -> Any:
    if make_scanner is not None:
        return make_scanner(context)  # type: ignore[arg-type]
    from json import JSONDecoder

    return JSONDecoder(parse_float=context.parse_float).scan_once  # type: ignore[attr-defined]


def _encoded(value: object, *, ascii_only: bool) -> str:
    if make_scanner is None:
        return _slow(value, ascii_only=ascii_only)
    quote = encode_basestring_ascii if ascii_only else encode_basestring
    try:
        encode = make_encoder(None, _refuse, quote, None, ":", ",", False, False, True)
        return "".join(encode(value, 0))
    except _InexactError:
        return _slow(value, ascii_only=ascii_only)


class _InexactError(Exception):
    """The C encoder met a Number."""


def _refuse(value: object) -> Any:
    if isinstance(value, Number):
        raise _InexactError
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _slow(value: object, *, ascii_only: bool) -> str:  # noqa: PLR0911 # a type each
    """Return the text of `value`, a Number as it was written."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        pairs = (
            f"{_quoted(key, ascii_only=ascii_only)}:{_slow(item, ascii_only=ascii_only)}"
            for key, item in value.items()
        )
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_slow(item, ascii_only=ascii_only) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value, ascii_only=ascii_only)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if isinstance(value, int):
        return str(value)
    _refuse(value)
    return ""


def _quoted(text: str, *, ascii_only: bool) -> str:
    characters = []
    for character in text:
        code = ord(character)
        if character in _ESCAPES:
            characters.append(_ESCAPES[character])
        elif code < 0x20 or (ascii_only and code > 0x7E and code < 0x10000):
            characters.append(f"\\u{code:04x}")
        elif ascii_only and code >= 0x10000:
            code -= 0x10000
            characters.append(f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}")
        else:
            characters.append(character)
    return '"' + "".join(characters) + '"'


def _place(text: str, position: int, problem: str) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return f"line {line}, column {column}: {problem}"
