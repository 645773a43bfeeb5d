# SPDX-License-Identifier: Apache-2.0
"""The warnings in an entry of the ledger: what gpuhook reported when a container started.

Loaded only for a container that has any.
"""

from __future__ import annotations

from gpuhook.errors import printable
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.errors import GpuhookError

_MOST_WARNINGS = 16
_MAX_CODE, _MAX_WARNING = 16, 1000  # characters


def records(
    errors: Iterable[GpuhookError], known: Iterable[dict[str, str]] = ()
) -> list[dict[str, str]]:
    """Return warnings in the form of an entry, after the `known` ones; bounded."""
    return _bounded([*known, *({"code": one.code, "message": one.message} for one in errors)])


def read(entry: dict[str, Any]) -> list[dict[str, str]]:
    """Return the warnings of an entry, printable; values of another form are skipped."""
    return _bounded(fastjson.objects(entry, "warnings"))


def _bounded(found: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    records: list[dict[str, str]] = []
    for one in found:
        code, message = one.get("code"), one.get("message")
        if not (isinstance(code, str) and isinstance(message, str)):
            continue
        record = {"code": printable(code, _MAX_CODE), "message": printable(message, _MAX_WARNING)}
        if record not in records:
            records.append(record)
        if len(records) == _MOST_WARNINGS:
            break
    return records
