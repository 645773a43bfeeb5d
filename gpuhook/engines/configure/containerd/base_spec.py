# SPDX-License-Identifier: Apache-2.0
"""The base_runtime_spec with gpuhook's prestart hook, for the hook route.

It replaces containerd's built-in default, which differs between versions. Therefore it is made from
the base spec of the default runtime, or else from the output of `ctr oci spec`.
"""

from __future__ import annotations

import json
from typing import Any

from gpuhook.engines.configure.containerd.containerd_handler import BASE_SPEC
from gpuhook.engines.configure.drop_in.hooks_d import hook_entry
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.errors import fault
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import EngineNode


def change(node: EngineNode, program: str, default: str) -> ConfigChange | None:
    """Return the change that adds the hook to the base spec; None if it has the hook.

    `default` is the default runtime's base spec, "" for none. Raises GH2027, GH2028.
    """
    before = node.files.read(BASE_SPEC)
    source, content = BASE_SPEC, before
    if default and default != BASE_SPEC:
        source, content = default, node.files.read(default)
    elif content is None:
        source, content = "ctr oci spec", node.base_spec
    if content is None:
        raise fault("GH2028", where=BASE_SPEC)
    spec = _parsed(source, content)
    hook = hook_entry(program)
    stage = spec.setdefault("hooks", {}).setdefault("prestart", [])
    if any(one == hook for one in stage) and before is not None and source == BASE_SPEC:
        return None
    stage[:] = [one for one in stage if one.get("args") != hook["args"]] + [hook]
    after = json.dumps(spec, indent=4).encode() + b"\n"
    return None if after == before else ConfigChange(BASE_SPEC, before, after)


def without(content: bytes, program: str) -> bytes:
    """Return a base spec without the hook; unchanged if it is not a spec."""
    try:
        spec = documents.parse_json(content)
        stage = spec["hooks"]["prestart"]
        stage[:] = [one for one in stage if one.get("args") != hook_entry(program)["args"]]
    except (ValueError, TypeError, LookupError, AttributeError):
        return content
    return json.dumps(spec, indent=4).encode() + b"\n"


def _parsed(source: str, content: bytes) -> dict[str, Any]:
    """Return the spec. The parts that change are checked. Raises GH2027."""
    try:
        spec = documents.parse_json(content)
        hooks = spec.get("hooks") or {}
        stage = hooks.get("prestart") or []
        for one in (spec["process"], hooks, *stage):
            one.get("path")
        spec["hooks"] = {**hooks, "prestart": list(stage)}
    except (ValueError, TypeError, LookupError, AttributeError):
        reason = "not an OCI spec that a base spec could be based on"
        raise fault("GH2027", where=source, said=reason) from None
    return dict(spec)
