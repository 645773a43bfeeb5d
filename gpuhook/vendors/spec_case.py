# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of a node for `gpuhook refresh`: which of them are stale, and why."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.errors import GpuhookError
    from gpuhook.host.hot.settings import Settings

STALE, UNCHANGED, KEPT, FORGOTTEN = "stale", "unchanged", "kept", "forgotten"
FAILED = "failed"
FRESH = "it matches this host"
NO_SPEC = "this node has no CDI spec"
FOREIGN = "gpuhook did not write it"
OTHER_DEVICES = "its devices have changed"
FORCED = "--force"
MAX_SPEC = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class SpecCase:
    """One spec, its state and the reason; generate-cdi writes it again with the options `words`.

    A new spec (`is_new`) must not replace a file. `check` is called with the new spec if there is
    no record of the options: it raises GH1527 if containers would get something else from it.
    `error` is why the spec of a failed case could not be checked.
    """

    path: str
    state: str
    reason: str
    words: tuple[str, ...] = ()
    check: Callable[[Compiled], None] | None = None
    is_new: bool = False
    error: GpuhookError | None = None


def stale_case(
    path: str,
    reason: str,
    absence: str,
    words: tuple[str, ...],
    check: Callable[[Compiled], None] | None = None,
) -> SpecCase:
    """Return the case of a stale spec; without a GPU it is kept, as the driver may return.

    `absence` is why the node has no GPU.
    """
    if absence:
        more = f" ({reason})" if reason else ""
        return SpecCase(path, KEPT, f"{absence}{more}; no container gets a GPU from it", words)
    return SpecCase(path, STALE, reason, words, check)


@dataclass(frozen=True, slots=True)
class SpecLook:
    """A look at the specs of a node: `known` are those in the directories of the settings.

    `read_dirs` are the directories of specs that engines read. `remade(words, path)` returns the
    spec that these options make now, in the format of the file at `path`; it raises the faults of
    generate-cdi. `older_reader` returns the newest version of CDI that an engine reads and the
    sentence about it, ("", "") if all engines read newer ones. With `is_forced`, fresh specs are
    stale too.
    """

    settings: Settings
    known: Registry
    read_dirs: tuple[str, ...]
    remade: Callable[[Sequence[str], str], bytes]
    older_reader: Callable[[], tuple[str, str]]
    is_forced: bool = False
