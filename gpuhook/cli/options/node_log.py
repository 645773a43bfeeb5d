# SPDX-License-Identifier: Apache-2.0
"""The log line of `gpuhook --debug` about a node that was read."""

from __future__ import annotations

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def log_node(facts: Mapping[str, object]) -> None:
    """Log the facts of a node with --debug."""
    context = click.get_current_context(silent=True)
    if context is None or not context.find_root().params.get("debug"):
        return  # structlog costs 50 ms
    from gpuhook.host import logs

    logs.logger().debug("node read", **facts)
