# SPDX-License-Identifier: Apache-2.0
"""The base_runtime_spec that carries gpuhook's prestart hook, for the route hook.

It takes the place of containerd's own default, which differs between versions: so it is made of the
base spec that the default runtime has, or else of what this containerd's `ctr oci spec` prints.
"""

from __future__ import annotations

import json
from typing import Any

from gpuhook.engines.configure.containerd.containerd_handler import BASE_SPEC
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.errors import fault
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import EngineNode

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def change(node: EngineNode, program: str, of: str) -> ConfigChange | None:
    """Return how the base spec comes to carry the hook; None where it does.

    `of` is the default runtime's base spec, "" where it has none. Raises GH2027, GH2028.
    """
    there = node.files.read(BASE_SPEC)
    source, content = BASE_SPEC, there
    if of and of != BASE_SPEC:
        source, content = of, node.files.read(of)
    elif content is None:
        source, content = "ctr oci spec", node.base_spec
    if content is None:
        raise fault("GH2028", where=BASE_SPEC)
    spec = _parsed(source, content)
    hook = _hook(program)
    stage = spec.setdefault("hooks", {}).setdefault("prestart", [])
    if any(one == hook for one in stage) and there is not None and source == BASE_SPEC:
        return None
    stage[:] = [one for one in stage if one.get("args") != hook["args"]] + [hook]
    after = json.dumps(spec, indent=4).encode() + b"\n"
    return None if after == there else ConfigChange(BASE_SPEC, there, after)


def without(content: bytes, program: str) -> bytes:
    """Return a base spec less our hook; as it is where it is no spec any more."""
    try:
        spec = documents.parse_json(content)
        stage = spec["hooks"]["prestart"]
        stage[:] = [one for one in stage if one.get("args") != _hook(program)["args"]]
    except (ValueError, TypeError, LookupError, AttributeError):
        return content
    return json.dumps(spec, indent=4).encode() + b"\n"


def _hook(program: str) -> dict[str, Any]:
    return {"path": program, "args": [program.rpartition("/")[2]], "env": [_PATH]}


def _parsed(source: str, content: bytes) -> dict[str, Any]:
    """Return the spec, checked as far as it is changed."""
    try:
        spec = documents.parse_json(content)
        hooks = spec.get("hooks") or {}
        stage = hooks.get("prestart") or []
        for one in (spec["process"], hooks, *stage):
            one.get("path")
        spec["hooks"] = {**hooks, "prestart": list(stage)}
    except (ValueError, TypeError, LookupError, AttributeError):
        said = "this is no OCI spec, of which a base spec could be made"
        raise fault("GH2027", where=source, said=said) from None
    return dict(spec)
