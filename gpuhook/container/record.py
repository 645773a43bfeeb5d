# SPDX-License-Identifier: Apache-2.0
"""The annotation that says what we changed in a config.json, so that it can be taken back.

HOT. The second create of one bundle reads an env that says `void` and finds our edits; with the
record the original comes back first and is resolved anew, so that nothing is there twice and
nothing of another driver stays. A tenant may forge the annotation: all that it can do is to name
variables (which go through policy like any others) and to take away devices, allow rules and
driver mounts from its own container.
"""

from __future__ import annotations

from gpuhook import fastjson
from gpuhook.container import oci

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.edits import ContainerEdits

ANNOTATION = "io.gpuhook.record"
HOOK_MARK = "GPUHOOK_HOOK="
_STAGES = ("createRuntime", "createContainer")  # in which the wrapper puts hooks


def take_back(spec: dict[str, Any]) -> bool:
    """Restore what an earlier create changed in `spec`; returns whether there was a record."""
    annotations = spec.get("annotations")
    if not isinstance(annotations, dict) or ANNOTATION not in annotations:
        return False
    record = _read(spec)
    del annotations[ANNOTATION]
    if not annotations:
        del spec["annotations"]
    _restore_variables(spec, record.get("env"))
    _drop_mounts(spec, _strings(record.get("mounts")))
    linux = spec.get("linux")
    if isinstance(linux, dict):
        _drop(linux.get("devices"), "path", _strings(record.get("devices")))
        _drop_rules(linux, record.get("rules"))
    _drop_hooks(spec)
    return True


def mounts(spec: dict[str, Any]) -> list[str]:
    """Return the destinations that the record names."""
    return _strings(_read(spec).get("mounts"))


def write(spec: dict[str, Any], before: dict[str, Any], edits: ContainerEdits) -> None:
    """Annotate `spec` with what `edits` changed; `before` is what `survey` said beforehand."""
    rules = oci.device_rules(spec)
    record = {
        "env": [
            [entry, before["env"].get(entry.partition("=")[0])] for entry in edits.get("env") or ()
        ],
        "devices": [node["path"] for node in edits.get("deviceNodes") or ()],
        "mounts": [mount["containerPath"] for mount in edits.get("mounts") or ()],
        "rules": [rule for rule in rules if rule not in before["rules"]],
    }
    text = fastjson.dumps(record).decode("utf-8", "surrogateescape")
    oci.section(spec, "annotations")[ANNOTATION] = text


def survey(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what `write` must know of a spec before it is changed."""
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    entries = [entry for entry in env or () if isinstance(entry, str)]
    return {"env": {e.partition("=")[0]: e for e in entries}, "rules": list(oci.device_rules(spec))}


def _read(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a spec, {} where there is none."""
    annotations = spec.get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        record = fastjson.loads(text.encode("utf-8", "surrogateescape"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _restore_variables(spec: dict[str, Any], pairs: object) -> None:
    """Put back the entry before ours (None: there was none) wherever ours is still in place."""
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    if not isinstance(env, list) or not isinstance(pairs, list):
        return
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] not in env:
            continue
        if isinstance(pair[1], str):
            env[env.index(pair[0])] = pair[1]
        else:
            env.remove(pair[0])


def _drop_mounts(spec: dict[str, Any], destinations: list[str]) -> None:
    """Drop recorded binds with `nodev`: no engine mounts so what a container's safety rests on."""
    mounts = spec.get("mounts")
    if isinstance(mounts, list):
        mounts[:] = [
            mount
            for mount in mounts
            if not (
                isinstance(mount, dict)
                and mount.get("destination") in destinations
                and mount.get("type") == "bind"
                and "nodev" in (mount.get("options") or ())
            )
        ]


def _drop(held: object, key: str, values: list[str]) -> None:
    if isinstance(held, list):
        gone = frozenset(values)
        held[:] = [item for item in held if not (isinstance(item, dict) and item.get(key) in gone)]


def _drop_rules(linux: dict[str, Any], rules: object) -> None:
    resources = linux.get("resources")
    held = resources.get("devices") if isinstance(resources, dict) else None
    if isinstance(held, list) and isinstance(rules, list):
        # Allow rules only: a forged record must not lift a denial.
        held[:] = [
            rule
            for rule in held
            if not (isinstance(rule, dict) and rule.get("allow") is True and rule in rules)
        ]


def _drop_hooks(spec: dict[str, Any]) -> None:
    hooks = spec.get("hooks")
    for name in _STAGES:
        stage = hooks.get(name) if isinstance(hooks, dict) else None
        if isinstance(stage, list):
            stage[:] = [hook for hook in stage if not marked(hook)]


def marked(hook: object) -> bool:
    """Return whether a hook in config.json was put there by the wrapper."""
    env = hook.get("env") if isinstance(hook, dict) else None
    return isinstance(env, list) and any(str(entry).startswith(HOOK_MARK) for entry in env)
