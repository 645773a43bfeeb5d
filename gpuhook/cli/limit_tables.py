# SPDX-License-Identifier: Apache-2.0
"""The tables and the document of `gpuhook limits show`."""

from __future__ import annotations

import click

from gpuhook.errors import printable
from gpuhook.host import console
from gpuhook.host.text_table import shortened
from gpuhook.memory_limits import guard_state, limit_report
from gpuhook.memory_limits.warm import memory_backend
from gpuhook.request.memory_request import NO_LIMIT, amount
from gpuhook.usage.display_names import pod_container, short_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuhook.memory_limits.driver_support import Support
    from gpuhook.memory_limits.limit_report import LimitQuestion, View
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.memory_request import MemoryLimit

SCHEMA = "gpuhook/limits/v1"
HEADERS = ("CONTAINER", "POD", "GPU", "GRANTED", "LIMIT", "REQUEST", "DRIVER", "USED", "BY")
WIDE = ("NAMESPACE", "CGROUP", "TROUBLE")
_MAX_LINE = 4096
_BACKENDS = {
    memory_backend.DMEM: "by the kernel's dmem controller",
    memory_backend.MISC: "by the driver's own accounting",
}


def show(shown: Sequence[View], asked: LimitQuestion, output: str, *, no_headers: bool) -> None:
    """Print the limits, and on standard error what is wrong with them."""
    wrong = [(view.container, error) for view in shown for error in view.findings()]
    if output == console.NAME:
        console.names(dict.fromkeys(view.container for view in shown))
        return
    if output in (console.JSON, console.YAML):
        findings = [
            {"container": one, "code": e.code, "message": e.message, "hint": e.hint}
            for one, e in wrong
        ]
        document = {
            "schema": SCHEMA,
            "containers": [view.document() for view in shown],
            "findings": findings,
            "trouble": asked.trouble.message if asked.trouble else "",
            "node": _node(asked.node),
        }
        console.document(document, output)
        return
    is_wide = output == "wide"
    headers = (*HEADERS, *WIDE) if is_wide else HEADERS
    rows = [_row(view, limit, is_wide=is_wide) for view in shown for limit in view.limits]
    console.rows(headers, rows, no_headers=no_headers)
    for line in _of_node(asked.node):
        click.echo(printable(line, _MAX_LINE), err=True)
    if asked.trouble:
        message = printable(asked.trouble.message, _MAX_LINE)
        click.echo(f"warning: {asked.trouble.code}: {message}", err=True)
    for what in _untold(shown):
        click.echo(f"warning: {printable(what, _MAX_LINE)}", err=True)
    for what in _above(shown):
        click.echo(f"warning: {printable(what, _MAX_LINE)}", err=True)
    for what in _left_out(shown):
        click.echo(f"note: {printable(what, _MAX_LINE)}", err=True)
    for _, error in wrong:
        click.echo(f"warning: {error.code}: {printable(error.message, _MAX_LINE)}", err=True)
        click.echo(f"hint: {error.hint}", err=True)


def _node(found: Support) -> dict[str, Any]:
    return {"holds": found.holds, "backend": found.backend or None, "reason": found.reason}


def _of_node(found: Support) -> list[str]:
    """Return whether this node can hold limits, and by what, or why not and what to do."""
    if found.holds:
        return [f"this node can hold memory limits: {_BACKENDS[found.backend]}"]
    return [f"warning: this node holds no memory limits: {found.reason}", f"hint: {found.remedy}"]


def _untold(shown: Sequence[View]) -> list[str]:
    """Return of which GPUs the driver does not tell, and why."""
    return [
        f"{view.container}: {limit.gpu}: {limit.trouble}"
        for view in shown
        for limit in view.limits
        if limit.trouble
    ]


def _above(shown: Sequence[View]) -> list[str]:
    """Return who is above its limit, as the guard has seen, and what it has done about that."""
    told = (
        (
            f"{view.container}: {limit.gpu}",
            guard_state.sentence(guard_state.document(limit.watched)),
        )
        for view in shown
        for limit in view.limits
    )
    return [f"{whose}: {words}" for whose, words in told if words]


def by(told: Mapping[str, Any]) -> str:
    """Return who bounds a limit's memory, of the limit's document, and if it is above that."""
    return f"{told['by']} (over)" if guard_state.over(told["guard"]) else str(told["by"])


def _left_out(shown: Sequence[View]) -> list[str]:
    """Return which guarantees were left out, and why."""
    return [
        f"{view.container}: {limit.gpu}: the guarantee of its grant"
        f"{_of(limit.granted)} is left out: {limit.record.guarantee}"
        for view in shown
        for limit in view.limits
        if limit.record is not None and limit.record.guarantee
    ]


def _of(granted: MemoryLimit | None) -> str:
    return f", {amount(granted.soft)}," if granted and granted.soft else ""


def _row(view: View, limit: LimitState, *, is_wide: bool) -> tuple[str, ...]:
    record, told = limit.record, limit_report.document(limit)
    cells = (
        view.container if is_wide else short_id(view.container),
        pod_container(view.pod),
        limit.gpu if is_wide else shortened(limit.gpu),
        _hard(limit.granted),
        _hard(record.limit if record else None),
        amount(record.limit.soft) if record and record.limit.soft else "-",
        (amount(limit.hard) if limit.held else "unknown"),
        "-" if told["used"] is None else amount(told["used"]),
        by(told),
    )
    if not is_wide:
        return cells
    namespace = str(view.pod.get("namespace") or "-")
    return (*cells, namespace, ",".join(told["cgroups"]) or "-", told["trouble"] or "-")


def _hard(limit: MemoryLimit | None) -> str:
    """Return a limit for its column: "-" where nobody has set one, "none" for a lifted one."""
    if limit is None or (limit.hard == NO_LIMIT and limit.soft):
        return "-"
    return amount(limit.hard)
