# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook nri run`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NriOptions:
    """The options of one plugin process; None is the default of the part that has the option."""

    socket_path: str
    name: str
    index: str  # two digits
    hook: str | None
    metrics_address: str | None
    is_expanded: bool
    is_waiting: bool  # for the first socket
    plugin_directory: str | None
