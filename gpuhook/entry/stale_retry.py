# SPDX-License-Identifier: Apache-2.0
"""Stale specs of this node's own, written anew when a grant fails for want of fresh ones.

Loaded only then.
"""

from __future__ import annotations

from gpuhook.entry import granting
from gpuhook.errors import GpuhookError, printable
from gpuhook.host.hot import settings as node_settings
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.entry.granting import Granting

_CODE = len("GH1000")
_LONGEST = 1000  # characters


def mended(
    grants: Granting,
    error: GpuhookError,
    work: Callable[[], object],
    refresh: Callable[[Callable[[], bool]], str],
) -> bool:
    """Return whether `work`, which failed by `error`, may be done again: specs were written anew.

    `refresh(is_needed)` does that and returns why it failed. Raises `error` with that reason: the
    engine shows one error, and no warning.
    """
    if not _is_mendable(grants, error):
        return False
    trouble = refresh(lambda: _is_still_wrong(grants, work))
    grants.forget()
    if trouble:
        raise _with_reason(error, printable(trouble, _LONGEST)) from error
    return True


def _with_reason(error: GpuhookError, trouble: str) -> GpuhookError:
    """Return `error` with the reason why `gpuhook refresh` did not help in its message."""
    hint = error.hint
    code = trouble.partition(": ")[0]
    if len(code) == _CODE and code.startswith("GH"):
        hint += f"; `gpuhook explain {code}` prints the cause"
    message = f"{error.message}; `gpuhook refresh` did not help: {trouble}"
    return type(error)(error.code, message, hint)


def _is_still_wrong(grants: Granting, work: Callable[[], object]) -> bool:
    grants.forget()
    try:
        work()
    except GpuhookError as error:
        return _is_mendable(grants, error)
    return False


def _is_mendable(grants: Granting, error: GpuhookError) -> bool:
    """Return whether a refusal may be for want of a fresh spec: one that we would write."""
    if grants.settings.on_stale != node_settings.REFRESH or state.is_rootless():
        return False
    if error.code == "GH1120":
        return True
    found = grants.registry()
    known = found.all()
    if error.code == "GH1104":
        # What a broken file was to describe is not known.
        is_there = any(spec.kind == grants.default_kind() for spec in known) or found.broken
        return grants.has_driver() and not is_there
    return error.code == "GH1102" and any(map(_is_stale, known))


def _is_stale(spec: Compiled) -> bool:
    """Return whether a spec of ours describes another state of this host."""
    return any(granting.changes(job) for job in granting.own_jobs(spec)[:1])
