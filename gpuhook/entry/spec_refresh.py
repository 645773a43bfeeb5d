# SPDX-License-Identifier: Apache-2.0
"""Stale specs of this node, written again if a plan fails because of them.

Loaded only then. It wraps around the plan: request/plan.py does not know it.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, printable
from gpuhook.host.hot import settings as node_settings
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.entry.plan_context import VendorContext
    from gpuhook.vendors.interface import VendorNode

_CODE = len("GH1000")
_LONGEST = 1000  # characters


def has_refreshed(error: GpuhookError, work: Callable[[], object], context: VendorContext) -> bool:
    """Return whether `work`, which failed with `error`, may be tried again: the specs are fresh.

    Raises `error` with the reason if they cannot be refreshed: the engine shows one error and no
    warning.
    """
    if context.refresh is None or not _is_refreshable(error, context):
        return False
    trouble = context.refresh(lambda: _is_still_wrong(work, context))
    context.node.forget()
    # A refresh that failed for another vendor's spec may have written this one.
    if trouble and _is_still_wrong(work, context):
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


def _is_still_wrong(work: Callable[[], object], context: VendorContext) -> bool:
    context.node.forget()
    try:
        work()
    except GpuhookError as error:
        return _is_refreshable(error, context)
    return False


def _is_refreshable(error: GpuhookError, context: VendorContext) -> bool:
    """Return whether a refusal may be caused by a stale spec that gpuhook would write."""
    if context.settings.on_stale != node_settings.REFRESH or state.is_rootless():
        return False
    return error.code == "GH1120" or _lacks_specs(error, context.node)


def _lacks_specs(error: GpuhookError, node: VendorNode) -> bool:
    """Return whether a name is unknown since the node's own specs are missing or stale."""
    found = node.registry()
    known = found.all()
    if error.code == "GH1104":
        # The content of a broken file is not known.
        is_there = any(spec.kind == node.kind for spec in known) or found.broken
        return node.has_driver() and not is_there
    return error.code == "GH1102" and any(map(node.changes, known))
