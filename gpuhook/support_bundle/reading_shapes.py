# SPDX-License-Identifier: Apache-2.0
"""The shapes of readings, as node_readings.py says them: those of a bundle may be anybody's making.

What only one check asks for, and asks warily (inventory, what the API server told), is left to it.
"""

from __future__ import annotations

from gpuhook.node import node_readings
from gpuhook.support_bundle.bundle_records import ShapeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A type; [shape] of a list, {"": shape} of an object with any keys, {key: shape} of one with these.
_TEXTS = {"": str}
_MAYBE = (str, type(None))
_FAULTS = [{"code": str, "message": str, "hint": str}]
_SHAPES: dict[str, Any] = {
    node_readings.INVENTORY: {"": object},
    node_readings.UNITS: {"": _TEXTS},
    node_readings.PROCESSES: [
        {"pid": int, "name": str, "argv": [str], "started": (int, float), "exe": str}
    ],
    node_readings.CONTAINERS: {
        "looked_at": int,
        "trouble": [{"where": str, "code": str, "message": str, "hint": str}],
        "containers": [
            {
                "id": str,
                **dict.fromkeys(("engine", "runtime", "pod", "namespace", "container"), _MAYBE),
                "missing": _FAULTS,
                "findings": _FAULTS,
                "injected_by": [str],
                "repairable": bool,
            }
        ],
    },
    node_readings.PROGRAMS: {"": {"path": str, "version": str, "trouble": str}},
    node_readings.CONTAINERD: {"config": str, "command": str},
    node_readings.STORED: [
        {**dict.fromkeys(("engine", "id", "name", "why", "program"), str), "running": bool}
    ],
    node_readings.API: {"": object},
    node_readings.SELF: _TEXTS,
}


def require(name: str, document: object) -> None:
    """Raise ShapeError for the document of a reading that is not as it is to be; None may be."""
    if document is not None and name in _SHAPES:
        _require(name, document, _SHAPES[name])


def _require(where: str, found: object, shape: Any) -> None:
    if isinstance(shape, list):
        for one in _of(where, found, list):
            _require(where, one, shape[0])
    elif isinstance(shape, dict):
        members = _of(where, found, dict)
        for key, one in shape.items():
            if key and key not in members:
                raise ShapeError(f"{where}: it has no {key}")
            for value in [members[key]] if key else members.values():
                _require(f"{where}.{key}" if key else where, value, one)
    else:
        _of(where, found, shape)


def _of(where: str, found: Any, kind: Any) -> Any:
    if not isinstance(found, kind) or (isinstance(found, bool) and kind not in (bool, object)):
        raise ShapeError(f"{where}: {type(found).__name__} is not what is there")
    return found
