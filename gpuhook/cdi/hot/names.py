# SPDX-License-Identifier: Apache-2.0
"""CDI names: `vendor/class=device`.

No regular expressions. Source: CDI SPEC.md, "Kind requirements" and "Device name"; the rules are
those of the CDI library's parser, which also accepts a single character as a name.
"""

from __future__ import annotations

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ENDS = _LETTERS | _DIGITS
_KIND_CHARACTERS = _ENDS | frozenset("_-.")
_DEVICE_CHARACTERS = _KIND_CHARACTERS | frozenset(":")


def split(qualified: str) -> tuple[str, str, str] | None:
    """Return (vendor, class, device) of a qualified name, None for another text."""
    kind, equals, device = qualified.partition("=")
    vendor, slash, class_name = kind.partition("/")
    if not (equals and slash and is_kind(kind) and is_device(device)):
        return None
    return vendor, class_name, device


def is_text(text: str) -> bool:
    """Return whether a system call accepts a text as a path, an argument or a variable.

    It must not contain a NUL or half a pair of surrogates, which JSON can write as an escape. Bytes
    that are not UTF-8 are kept as fastjson reads them.
    """
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return False


def is_kind(kind: str) -> bool:
    """Return whether `kind` is `vendor/class`, both starting with a letter."""
    vendor, slash, class_name = kind.partition("/")
    return bool(slash) and _is_kind_part(vendor) and _is_kind_part(class_name)


def is_device(name: str) -> bool:
    """Return whether `name` is a device name: letters, digits, `_-.:`, alphanumeric at the ends."""
    return (
        bool(name)
        and name[0] in _ENDS
        and name[-1] in _ENDS
        and _DEVICE_CHARACTERS.issuperset(name)
    )


def _is_kind_part(part: str) -> bool:
    return (
        bool(part)
        and part[0] in _LETTERS
        and part[-1] in _ENDS
        and _KIND_CHARACTERS.issuperset(part)
    )
