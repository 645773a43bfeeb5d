# SPDX-License-Identifier: Apache-2.0
"""Undo the changes that the record of a config.json names: see change_record.py.

Loaded only for a config.json that has a record.
"""

from __future__ import annotations

from gpuhook.apply.spec.oci_spec import BIND_NODE_OPTIONS, HOOK_MARK
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STAGES = ("createRuntime", "createContainer")  # in which the wrapper puts hooks


def undo(spec: dict[str, Any], record: Any) -> None:
    """Restore what an earlier create changed in `spec`, by its record."""
    _restore_variables(fastjson.array(spec, "process", "env"), fastjson.array(record, "env"))
    added = fastjson.array(record, "groups")
    if added:
        groups = fastjson.array(spec, "process", "user", "additionalGids")
        groups[:] = [gid for gid in groups if gid not in added]
    targets = frozenset(fastjson.strings(record, "mounts"))
    nodes = frozenset(fastjson.strings(record, "devices"))
    rules = frozenset(map(fastjson.dumps, fastjson.array(record, "rules")))
    _drop(fastjson.array(spec, "mounts"), lambda mount: _is_ours(mount, targets, nodes))
    _drop(fastjson.array(spec, "linux", "devices"), lambda node: _text(node, "path") in nodes)
    _drop(
        fastjson.array(spec, "linux", "resources", "devices"),
        lambda rule: rule.get("allow") is True and fastjson.dumps(rule) in rules,
    )
    for stage in _STAGES:
        _drop(fastjson.array(spec, "hooks", stage), _is_marked)


def _restore_variables(env: list[Any], pairs: list[Any]) -> None:
    """Restore the earlier entry (None: there was none) of each variable that still has ours."""
    before = {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    }
    restored = []
    for entry in env:
        is_ours = isinstance(entry, str) and entry in before
        old = before.pop(entry) if is_ours else entry
        if not is_ours or isinstance(old, str):
            restored.append(old)
    env[:] = restored


def _drop(items: list[Any], is_ours: Callable[[dict[str, Any]], bool]) -> None:
    items[:] = [item for item in items if not (isinstance(item, dict) and is_ours(item))]


def _is_ours(mount: dict[str, Any], targets: frozenset[str], nodes: frozenset[str]) -> bool:
    """Return whether a mount is a recorded bind: with `nodev`, or of a node, as it was added.

    No engine uses `nodev` for mounts that protect the host.
    """
    destination, options = _text(mount, "destination"), fastjson.array(mount, "options")
    is_node = destination in nodes and options == BIND_NODE_OPTIONS
    return mount.get("type") == "bind" and (
        is_node or (destination in targets and "nodev" in options)
    )


def _text(item: dict[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) else None


def _is_marked(hook: dict[str, Any]) -> bool:
    """Return whether the wrapper added a hook of config.json."""
    return any(entry.startswith(HOOK_MARK) for entry in fastjson.strings(hook, "env"))
