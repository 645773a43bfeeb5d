# SPDX-License-Identifier: Apache-2.0
"""The tables and the document of `gpuhook limits show`."""

from __future__ import annotations

import click

from gpuhook.containers.warm.driver_limit import DMEM, MISC
from gpuhook.errors import printable
from gpuhook.host import console
from gpuhook.memory_limits import guard_state, limit_report
from gpuhook.request.memory_request import NO_LIMIT, amount
from gpuhook.usage import node_usage
from gpuhook.usage.display_names import NOTHING, container_name, short_id, short_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuhook.memory_limits.limit_report import ContainerLimits, LimitReader
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.usage.display_names import GpuNames
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.usage.limit_device import LimitSupport

SCHEMA = "gpuhook/limits/v1"
HEADERS = (
    "CONTAINER", "NAME", "IMAGE", "GPU", "GRANTED", "LIMIT", "REQUEST", "DRIVER", "USED", "BY",
)  # fmt: skip
_ORDER = ("LIMIT", "USED", "BY", "GPU", "NAME", "DRIVER")  # the most important columns
WIDE = ("NAMESPACE", "UUID", "CGROUP", "TROUBLE")
_MAX_LINE = 4096
_BACKENDS = {
    DMEM: "by the kernel's dmem controller",
    MISC: "by the driver's own accounting",
}


def show(
    shown: Sequence[ContainerLimits], asked: LimitReader, output: str, *, no_headers: bool
) -> None:
    """Print the limits, and their findings on standard error."""
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
            **_nodes(asked.nodes),
        }
        console.document(document, output)
        return
    is_wide = output == "wide"
    headers = (*HEADERS, *WIDE) if is_wide else HEADERS
    pairs = [(view, limit) for view in shown for limit in view.limits]
    gpus = [limit.gpu for _, limit in pairs]
    names = node_usage.names_of(node_usage.node_devices(asked.library) if gpus else (), gpus)
    rows = [_row(view, limit, names, is_wide=is_wide) for view, limit in pairs]
    console.rows(headers, rows, no_headers=no_headers, order=_ORDER, is_wide=is_wide)
    for vendor, support in asked.nodes.items():
        title = f"{vendor.title}: " if len(asked.nodes) > 1 else ""
        for line in _support_lines(support, title):
            click.echo(printable(line, _MAX_LINE), err=True)
    if asked.trouble:
        console.warn(f"{asked.trouble.code}: {asked.trouble.message}")
    for what in (*_unknown(shown), *_above(shown)):
        console.warn(what)
    for what in _left_out(shown):
        console.note(what)
    for _, error in wrong:
        console.warn(f"{error.code}: {error.message}")
        click.echo(f"hint: {error.hint}", err=True)


def _nodes(found: Mapping[Vendor, LimitSupport]) -> dict[str, Any]:
    """Return what the node supports: of the first vendor, and by vendor if there are several."""
    documents = {
        vendor.name: {
            "holds": support.holds,
            "backend": support.backend or None,
            "reason": support.reason,
        }
        for vendor, support in found.items()
    }
    node = {"node": next(iter(documents.values()))}
    return {**node, "nodes": documents} if len(documents) > 1 else node


def _support_lines(found: LimitSupport, title: str) -> list[str]:
    """Return the lines on whether and how this node can enforce limits."""
    if found.holds:
        return [f"{title}this node can enforce memory limits: {_BACKENDS[found.backend]}"]
    return [
        f"warning: {title}this node cannot enforce memory limits: {found.reason}",
        f"hint: {found.remedy}",
    ]


def _unknown(shown: Sequence[ContainerLimits]) -> list[str]:
    """Return the GPUs whose limits the driver does not report, and the reason."""
    return [
        f"{view.container}: {limit.gpu}: {limit.trouble}"
        for view in shown
        for limit in view.limits
        if limit.trouble
    ]


def _above(shown: Sequence[ContainerLimits]) -> list[str]:
    """Return the containers above their limits, and what the guard has done about them."""
    found = (
        (
            f"{view.container}: {limit.gpu}",
            guard_state.sentence(guard_state.document(limit.watched)),
        )
        for view in shown
        for limit in view.limits
    )
    return [f"{gpu}: {status}" for gpu, status in found if status]


def enforcer(limit: Mapping[str, Any]) -> str:
    """Return what enforces a limit, by the limit's document; "(over)" if it is exceeded."""
    return f"{limit['by']} (over)" if guard_state.over(limit["guard"]) else str(limit["by"])


def _left_out(shown: Sequence[ContainerLimits]) -> list[str]:
    return [
        f"{view.container}: {limit.gpu}: the granted guarantee"
        f"{_guarantee(limit.granted)} is not set: {limit.record.guarantee}"
        for view in shown
        for limit in view.limits
        if limit.record is not None and limit.record.guarantee
    ]


def _guarantee(granted: MemoryLimit | None) -> str:
    return f", {amount(granted.soft)}," if granted and granted.soft else ""


def _row(
    view: ContainerLimits, limit: LimitState, names: GpuNames, *, is_wide: bool
) -> tuple[str, ...]:
    record, report = limit.record, limit_report.document(limit)
    cells = (
        view.container if is_wide else short_id(view.container),
        container_name(view.pod, view.name),
        (view.image or NOTHING) if is_wide else short_image(view.image),
        names.listed([limit.gpu]),
        _hard(limit.granted),
        _hard(record.limit if record else None),
        amount(record.limit.soft) if record and record.limit.soft else "-",
        (amount(limit.hard) if limit.held else "unknown"),
        "-" if report["used"] is None else amount(report["used"]),
        enforcer(report),
    )
    if not is_wide:
        return cells
    namespace = str(view.pod.get("namespace") or "-")
    return (
        *cells,
        namespace,
        limit.gpu,
        ",".join(report["cgroups"]) or "-",
        report["trouble"] or "-",
    )


def _hard(limit: MemoryLimit | None) -> str:
    """Return a limit for its column: "-" if it was never set, "none" if it was lifted."""
    if limit is None or (limit.hard == NO_LIMIT and limit.soft):
        return "-"
    return amount(limit.hard)
