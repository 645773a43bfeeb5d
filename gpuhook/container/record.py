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


def take_back(spec: dict[str, Any]) -> bool:
    """Restore what an earlier create changed in `spec`; returns whether there was a record."""
    annotations = spec.get("annotations")
    if not isinstance(annotations, dict) or ANNOTATION not in annotations:
        return False
    from gpuhook.container import record_undone  # bundles are seldom created twice

    record_undone.take_back(spec)
    return True


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
    held = env if isinstance(env, list) else []
    entries = [entry for entry in held if isinstance(entry, str)]
    return {"env": {e.partition("=")[0]: e for e in entries}, "rules": list(oci.device_rules(spec))}
