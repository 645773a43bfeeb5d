# SPDX-License-Identifier: Apache-2.0
"""What cannot be checked of the ledger: by users other than root, or in the device plugin's pod."""

from __future__ import annotations

import errno
import os

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OF_ROOT = "/run/gpuhook/containers"
_DENIED = "denied"
_MOST = 3  # directories that a sentence names


def missing() -> str:
    """Return the state directory that was named and is not there yet, else "".

    Raises OSError if it can be none, or cannot be looked into.
    """
    place = state.directory()
    try:
        os.listdir(ledger.directory())
    except FileNotFoundError as error:
        if not os.environ.get(state.DIRECTORY_ENV) or os.path.isdir(place):
            return ""
        if os.path.lexists(place) or not os.path.isdir(os.path.dirname(place) or "."):
            raise OSError(error.errno, error.strerror, place) from error
        return place
    return ""


def warnings() -> list[str]:
    """Return what cannot be checked of the ledger, in sentences; [] for root on the host."""
    told = []
    found = [_unchecked(path) for path in _paths(ledger.directory())]
    hidden = found.count(_DENIED)
    if hidden:
        told.append(f"run as root: {_entries(hidden)} could not be checked")
    absent = [place for place in found if place not in ("", _DENIED)]
    if absent:
        places = list(dict.fromkeys(absent))
        named = ", ".join(places[:_MOST]) + (", ..." if places[_MOST:] else "")
        told.append(
            f"{_entries(len(absent))} could not be checked, the containers may have ended:"
            f" there is no {named} here; `gpuhook repair --all` on the host removes entries of"
            " containers that have ended"
        )
    if state.is_rootless() and not os.environ.get(state.DIRECTORY_ENV):
        try:
            others = len(_paths(OF_ROOT))
        except OSError as error:
            return [*told, f"run as root: {OF_ROOT}, root's ledger: {error.strerror or error}"]
        if others:
            told.append(f"run as root: {_entries(others)} of root's ledger not looked at")
    return told


def _paths(directory: str) -> list[str]:
    """Return the files of a ledger's entries; none where our own is not there."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    names = [name for name in names if name.endswith(".json") and not files.is_temporary(name)]
    return [os.path.join(directory, name) for name in names]


def _unchecked(path: str) -> str:
    """Return what keeps an entry's container from being checked, "" if nothing does.

    _DENIED if this user may not look, else the path of the state that does not exist here.
    """
    entry = ledger.entry_at(path)
    if entry is None:
        return _DENIED if os.path.exists(path) and not os.access(path, os.R_OK) else ""
    if ledger.is_alive(entry) is not None:
        return ""
    place = entry["root"] or f"/proc/{entry.get('pid')}"
    return _DENIED if _is_state_hidden(entry) else place


def _is_state_hidden(entry: dict[str, Any]) -> bool:
    try:
        os.stat(os.path.join(entry["root"], entry["id"]))
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
