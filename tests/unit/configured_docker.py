# SPDX-License-Identifier: Apache-2.0
"""A host whose engine has two files, one of them in a new directory."""

from __future__ import annotations

import json
from typing import Any

from gpuhook.engines.configure.engine_plan import (
    ConfigChange,
    EngineNode,
    EngineOptions,
    EnginePlan,
    ExpectedConfig,
    Service,
)

MAIN = "/etc/docker/daemon.json"
BESIDE = "/etc/docker/gpuhook.d/hook.json"


def plan(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
    before = node.files.read(MAIN)
    document: dict[str, Any] = json.loads(before) if before and before.strip() else {}
    document.setdefault("runtimes", {})[wanted.name] = {"path": wanted.program}
    if wanted.is_default:
        document["default-runtime"] = wanted.name
    beside = node.files.read(BESIDE)
    contents = (
        (MAIN, before, json.dumps(document, indent=2).encode() + b"\n"),
        (BESIDE, beside, json.dumps({"hook": wanted.hook}).encode()),
    )
    changes = tuple(ConfigChange(path, old, new) for path, old, new in contents if old != new)
    expected = ExpectedConfig(
        {wanted.name: wanted.program}, wanted.name if wanted.is_default else ""
    )
    return EnginePlan(
        "docker", changes, expected, Service(("docker.service",), ("dockerd-of-no-host",))
    )


def without(
    path: str, content: bytes, wanted: EngineOptions, before: bytes | None = None
) -> bytes | None:
    assert before != content
    if path == BESIDE:
        return None
    document = json.loads(content)
    document.get("runtimes", {}).pop(wanted.name, None)
    return json.dumps(document, indent=2).encode() if document != {"runtimes": {}} else None
