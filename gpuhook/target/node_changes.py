# SPDX-License-Identifier: Apache-2.0
"""Whether the device nodes of a running container are still those of its devices."""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson, state
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.errors import GpuhookError

_SHOWN = 4  # of the changes


def node_changes(container: str, entry: dict[str, Any]) -> GpuhookError | None:
    """Return GH1763 if a device node of a container is not that of its device at the start.

    `entry` is its entry in the ledger. A node that was removed from the container is ignored.
    """
    gone = fastjson.array(entry, "withdrawn")
    nodes = [path for path in fastjson.array(entry, "nodes") if path not in gone]
    recorded = entry.get("identities")
    known = recorded if isinstance(recorded, dict) else {}
    held = {path: str(known[path]) for path in nodes if path in known}
    found = [text for one in vendors() for text in one.traces.changed(held, state.host_root())]
    if not found:
        return None
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return fault("GH1763", container=container, changes="; ".join([*found[:_SHOWN], *more]))
