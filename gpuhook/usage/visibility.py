# SPDX-License-Identifier: Apache-2.0
"""The ledger entries that this process cannot check: not as root, or in the plugin's pod."""

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
    """Return the state directory that the environment names and that does not exist, else "".

    Raises OSError if it is not a directory, or cannot be read.
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
    """Return sentences on the entries that cannot be checked, [] for root on the host."""
    sentences = []
    found = [_unchecked(path) for path in _paths(ledger.directory())]
    hidden = found.count(_DENIED)
    if hidden:
        sentences.append(f"run as root: {_entries(hidden)} could not be checked")
    absent = [place for place in found if place not in ("", _DENIED)]
    if absent:
        places = list(dict.fromkeys(absent))
        named = ", ".join(places[:_MOST]) + (", ..." if places[_MOST:] else "")
        verb = "do" if places[1:] else "does"
        sentences.append(
            f"{_entries(len(absent))} could not be checked, the containers may have exited:"
            f" {named} {verb} not exist here; `gpuhook repair --all` on the host removes entries of"
            " containers that have exited"
        )
    if state.is_rootless() and not os.environ.get(state.DIRECTORY_ENV):
        try:
            others = len(_paths(OF_ROOT))
        except OSError as error:
            return [*sentences, f"run as root: {OF_ROOT}, root's ledger: {error.strerror or error}"]
        if others:
            verb = "was" if others == 1 else "were"
            sentences.append(f"run as root: {_entries(others)} of root's ledger {verb} not read")
    return sentences


def _paths(directory: str) -> list[str]:
    """Return the files of the entries, [] if the ledger does not exist."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    names = [name for name in names if name.endswith(".json") and not files.is_temporary(name)]
    return [os.path.join(directory, name) for name in names]


def _unchecked(path: str) -> str:
    """Return why the container of an entry cannot be checked, "" if it can.

    The reason is _DENIED, or the path of the container's state, which does not exist here.
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
