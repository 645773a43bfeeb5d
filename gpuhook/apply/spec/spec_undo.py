# SPDX-License-Identifier: Apache-2.0
"""The record in a config.json, and the spec as it was before: see change_record.py.

Loaded only for a config.json that has a record.
"""

from __future__ import annotations

from gpuhook.apply.spec.change_record import HOOK_MARK, KEY
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STAGES = ("createRuntime", "createContainer")  # in which the wrapper puts hooks


def take_back(spec: dict[str, Any]) -> None:
    """Restore what an earlier create changed in `spec`, which has a record."""
    record = _read(spec)
    del spec[KEY]
    _restore_variables(spec, record.get("env"))
    _drop_mounts(spec, _strings(record.get("mounts")))
    linux = spec.get("linux")
    if isinstance(linux, dict):
        _drop(linux.get("devices"), "path", _strings(record.get("devices")))
        _drop_rules(linux, record.get("rules"))
    _drop_hooks(spec)


def mounts(spec: dict[str, Any]) -> list[str]:
    """Return the destinations that the record names."""
    return _strings(_read(spec).get("mounts"))


def _read(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a spec, {} if it has none."""
    record = spec.get(KEY)
    return record if isinstance(record, dict) else {}


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _restore_variables(spec: dict[str, Any], pairs: object) -> None:
    """Restore the earlier entry (None: there was none) of each variable that still has ours."""
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    if not isinstance(env, list) or not isinstance(pairs, list):
        return
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


def _drop_mounts(spec: dict[str, Any], destinations: list[str]) -> None:
    """Drop recorded binds with `nodev`: no engine uses that for mounts that protect the host."""
    mounts = spec.get("mounts")
    ours = frozenset(destinations)
    if isinstance(mounts, list):
        mounts[:] = [
            mount
            for mount in mounts
            if not (
                isinstance(mount, dict)
                and isinstance(mount.get("destination"), str)
                and mount["destination"] in ours
                and mount.get("type") == "bind"
                and "nodev" in (mount.get("options") or ())
            )
        ]


def _drop(held: object, key: str, values: list[str]) -> None:
    if isinstance(held, list):
        gone = frozenset(values)
        held[:] = [
            item
            for item in held
            if not (isinstance(item, dict) and isinstance(item.get(key), str) and item[key] in gone)
        ]


def _drop_rules(linux: dict[str, Any], rules: object) -> None:
    resources = linux.get("resources")
    held = resources.get("devices") if isinstance(resources, dict) else None
    if isinstance(held, list) and isinstance(rules, list):
        ours = frozenset(map(fastjson.dumps, rules))
        held[:] = [
            rule
            for rule in held
            if not (
                isinstance(rule, dict)
                and rule.get("allow") is True
                and fastjson.dumps(rule) in ours
            )
        ]


def _drop_hooks(spec: dict[str, Any]) -> None:
    hooks = spec.get("hooks")
    for name in _STAGES:
        stage = hooks.get(name) if isinstance(hooks, dict) else None
        if isinstance(stage, list):
            stage[:] = [hook for hook in stage if not marked(hook)]


def marked(hook: object) -> bool:
    """Return whether the wrapper added a hook of config.json."""
    env = hook.get("env") if isinstance(hook, dict) else None
    return isinstance(env, list) and any(str(entry).startswith(HOOK_MARK) for entry in env)
