# SPDX-License-Identifier: Apache-2.0
"""JSON through the C accelerator of the standard library, without importing `json`.

`import json` costs 5 ms, as it imports `re`; `_json` costs 0.1. Both agree on what is valid. On an
interpreter whose accelerator differs, `json` does the work.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _json import encode_basestring, make_encoder, make_scanner
except ImportError:  # another implementation of Python, or an unknown CPython
    make_scanner = None  # type: ignore[assignment,misc]

_MAX_DIGITS = 4300  # sys.int_info.default_max_str_digits, also if Python has no such limit
_SPACE = " \t\n\r"
_CONSTANTS = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class ExactNumber:
    """A number that Python would change or refuse, kept as text.

    It has a fraction or an exponent, is `-0`, or has more digits than int() takes.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactNumber) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _whole(text: str) -> int | ExactNumber:
    return int(text) if len(text) < _MAX_DIGITS and text != "-0" else ExactNumber(text)


# What the C scanner reads from a decoder. A namespace is made in a tenth of the time of a class.
_Namespace: Any = type(sys.implementation)
_PLAIN = _Namespace(
    strict=True,
    object_hook=None,
    object_pairs_hook=None,
    array_hook=None,
    parse_float=float,
    parse_int=int,
    parse_constant=_CONSTANTS.__getitem__,
)


def _with(context: Any, **attributes: Any) -> Any:
    return _Namespace(**{**vars(context), **attributes})


def _noting(context: Any, repeated: list[str]) -> Any:
    """Return a context that records a key that an object has twice."""

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            repeated.append(_repeated(pairs))
        return found

    return _with(context, object_pairs_hook=to_object)


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return ""


def loads(data: bytes, *, exact: bool = False, repeated: list[str] | None = None) -> Any:
    """Return the value of a JSON document; raises ValueError with the position of an error.

    With `exact`, some numbers become ExactNumbers, so that the document can be written again
    without loss. Bytes that are not UTF-8 are kept as surrogate escapes, which `dumps` turns back.
    If an object has a key twice, the last value is taken and the key is added to `repeated`: other
    readers take the first value, or merge them.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not exact:
        return _value(text, _PLAIN, repeated)
    if b"-0" not in data:
        try:
            return _value(text, _with(_PLAIN, parse_float=ExactNumber), repeated)
        except ValueError:
            if repeated is not None:
                repeated.clear()
    # Integers that Python would change or refuse are kept, too; slower.
    return _value(text, _with(_PLAIN, parse_float=ExactNumber, parse_int=_whole), repeated)


def _value(text: str, context: Any, repeated: list[str] | None) -> Any:
    if repeated is not None:
        context = _noting(context, repeated)
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        value, end = _scanner(context)(text, start)
    except StopIteration as stop:
        raise ValueError(place(text, stop.value, "a value is expected")) from None
    except SystemError:
        # The C scanner raises json.decoder's error, and has no message if that is not loaded.
        raise ValueError(_reason(text)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if type(error) is ValueError:  # of int(); a syntax error is of a subclass
            raise ValueError("a number has too many digits") from None
        raise
    rest = text[end:].lstrip(_SPACE)
    if rest:
        raise ValueError(place(text, len(text) - len(rest), "there is more after the value"))
    return value


def array(document: Any, *keys: str) -> list[Any]:
    """Return the array at a path of keys; [] if it, or an object on the way, is something else."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, list) else []


def fields(document: Any, *keys: str) -> dict[str, Any]:
    """Return the object at a path of keys; {} if it, or one on the way, is something else."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def objects(document: Any, *keys: str) -> list[dict[str, Any]]:
    """Return the objects in the array at a path of keys."""
    return [item for item in array(document, *keys) if isinstance(item, dict)]


def strings(document: Any, *keys: str) -> list[str]:
    """Return the strings in the array at a path of keys."""
    return [item for item in array(document, *keys) if isinstance(item, str)]


def _reason(text: str) -> str:
    """Return the standard library's message about a broken document."""
    import json

    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return "it cannot be read"


def dumps(value: object, source: bytes | None = None) -> bytes:
    """Return the JSON document of `value`, in one line.

    `source` is the document from which `value` was read, with changes. Surrogates that may
    represent a byte become that byte, unless `source` is UTF-8 and has escapes of such surrogates.
    """
    text = _encoded(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        has_bytes = source is None or b"\\udc" not in source.lower() or not _is_utf8(source)
    parts = []
    for c in text:
        is_escape = "\ud800" <= c <= "\udfff" and not (has_bytes and "\udc80" <= c <= "\udcff")
        parts.append(f"\\u{ord(c):04x}" if is_escape else c)
    return "".join(parts).encode("utf-8", "surrogateescape")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _scanner(context: Any) -> Any:
    if make_scanner is not None:
        return make_scanner(context)
    from json import JSONDecoder

    names = ("parse_float", "parse_int", "object_pairs_hook")
    return JSONDecoder(**{name: getattr(context, name) for name in names}).scan_once  # type: ignore[attr-defined]


def _encoded(value: object) -> str:
    if make_scanner is None:
        return _slow(value)
    try:
        encode = make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, True)
        return "".join(encode(value, 0))
    except (_InexactError, RecursionError):
        return _slow(value)


class _InexactError(Exception):
    """The C encoder met an ExactNumber."""


def _refuse(value: object) -> Any:
    if isinstance(value, ExactNumber):
        raise _InexactError
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _slow(value: object) -> str:
    """Return the text of `value`, with the digits of each ExactNumber; it may be nested deeply."""
    parts: list[str] = []
    left = [value]  # the last one is next; an ExactNumber is any text
    while left:
        item = left.pop()
        if isinstance(item, dict):
            parts.append("{")
            left.append(ExactNumber("}"))
            for number, (key, one) in reversed(list(enumerate(item.items()))):
                left += (one, ExactNumber(f"{',' if number else ''}{_quoted(key)}:"))
        elif isinstance(item, (list, tuple)):
            parts.append("[")
            left.append(ExactNumber("]"))
            for number, one in reversed(list(enumerate(item))):
                left += (one, ExactNumber("," if number else ""))
        else:
            parts.append(_scalar(item))
    return "".join(parts)


def _scalar(value: object) -> str:
    if isinstance(value, ExactNumber):
        return value.text
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if isinstance(value, int):
        return str(value)
    _refuse(value)
    return ""


def _quoted(text: str) -> str:
    characters = []
    for character in text:
        if character in _ESCAPES:
            characters.append(_ESCAPES[character])
        elif ord(character) < 0x20:
            characters.append(f"\\u{ord(character):04x}")
        else:
            characters.append(character)
    return '"' + "".join(characters) + '"'


def place(text: str, position: int, problem: str) -> str:
    """Return a problem with its line and column."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return f"line {line}, column {column}: {problem}"
