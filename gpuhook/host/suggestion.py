# SPDX-License-Identifier: Apache-2.0
"""The known word that is most similar to an unknown one."""

from __future__ import annotations

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Return the most similar of `known`, None if none is similar; 1 is equal, 0 anything."""
    import difflib  # only for a mistyped word

    lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(printable(word, 60).lower(), lower, n=1, cutoff=cutoff)
    return lower[found[0]] if found else None
