# SPDX-License-Identifier: Apache-2.0
"""What of the ledger somebody may not look at: to them it must not seem that there is nothing."""

from __future__ import annotations

import os

from gpuhook import files, state
from gpuhook.container import ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OF_ROOT = "/run/gpuhook/containers"


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
    """Return what this user cannot see of the ledger, in sentences; [] for root."""
    told = []
    hidden = sum(map(_is_hidden, _paths(ledger.directory())))
    if hidden:
        told.append(f"run as root: {_entries(hidden)} could not be checked")
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


def _is_hidden(path: str) -> bool:
    """Return whether it cannot be told if the container of an entry is there."""
    entry = ledger.entry_at(path)
    if entry is None:
        return os.path.exists(path) and not os.access(path, os.R_OK)
    return not ledger.is_alive(entry) and _is_state_hidden(entry)


def _is_state_hidden(entry: dict[str, Any]) -> bool:
    try:
        os.stat(os.path.join(entry["root"], entry["id"]))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
