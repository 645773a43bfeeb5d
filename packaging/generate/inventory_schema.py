# SPDX-License-Identifier: Apache-2.0
"""The facts of the inventory in its JSON schema and in the tests' NVML stub."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from gpuhook.vendors.amd.inventory.amd_dump import AMD_PATTERNS
from gpuhook.vendors.amd.inventory.amd_inventory import (
    OTHER,
    PCIE,
    XGMI,
    AmdDevice,
    AmdDriver,
    AmdGpu,
    AmdLink,
)
from gpuhook.vendors.nvidia.inventory.inventory import (
    Driver,
    FactRule,
    Gpu,
    MigInstance,
    fact_rules,
)
from gpuhook.vendors.nvidia.nvml.nvml_inventory import QUESTIONS

CHECKOUT = Path(__file__).parents[2]
SCHEMA = "gpuhook/schemas/inventory.json"
STUB = "tests/simulated/nvml_stub_facts.h"
_STUB_HEAD = """\
/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a GPU that NVML reports. `make generate` writes this file from the fields of
 * gpuhook/vendors/nvidia/inventory/inventory.py. FACT: NVML has no function for this value alone;
 * SETTING_FACT: not every driver has it.
 */
"""
# Links of one type and weight, to the devices with these render nodes.
_AMD_LINKS: dict[str, Any] = {
    "type": "object",
    "required": ["type", "render_minors"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": [XGMI, PCIE, OTHER]},
        "weight": {"type": "integer", "minimum": 0},
        "render_minors": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    },
}
# By the type of a fact without a rule for its values.
_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": 0},
    int | None: {"$ref": "#/$defs/number"},
    str | None: {"$ref": "#/$defs/text"},
    bool | None: {"type": ["boolean", "string"], "pattern": "^(unknown)$"},
}


def files() -> dict[str, str]:
    """Return both files, by their paths in the checkout."""
    document = json.loads((CHECKOUT / SCHEMA).read_text(encoding="utf-8"))
    document["properties"]["driver"] = facts_schema(Driver, is_complete=True)
    document["$defs"]["gpu"] = facts_schema(Gpu)
    document["$defs"]["instance"] = facts_schema(MigInstance)
    document["properties"]["amd"] = _amd_section()
    document["$defs"]["amd_gpu"] = _amd_schema(AmdGpu)
    document["$defs"]["amd_device"] = _amd_schema(AmdDevice)
    return {SCHEMA: json.dumps(document, indent=2) + "\n", STUB: stub_facts()}


def facts_schema(kind: type[Any], *, is_complete: bool = False) -> dict[str, Any]:
    """Return the schema of one class of facts; `is_complete` requires every field."""
    hints, rules = get_type_hints(kind), fact_rules(kind)
    required = [one.name for one in fields(kind) if is_complete or one.default is MISSING]
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": {name: _schema(hints[name], rule) for name, rule in rules.items()},
    }


def _amd_section() -> dict[str, Any]:
    """Return the schema of the key `amd`."""
    lists = {"gpus": {"$ref": "#/$defs/amd_gpu"}, "device_nodes": {"$ref": "#/$defs/device_node"}}
    lists["warnings"] = {"$ref": "#/$defs/line"}
    properties = {name: {"type": "array", "items": items} for name, items in lists.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "driver": _amd_schema(AmdDriver),
            "token": {"$ref": "#/$defs/line"},
            **properties,
        },
    }


def _amd_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the schema of one class of AMD's facts; a fact that is None is left out of a dump."""
    hints = get_type_hints(kind)
    plain: dict[Any, dict[str, Any]] = {
        int: {"type": "integer", "minimum": 0},
        str: {"$ref": "#/$defs/line"},
        tuple[str, ...]: {"type": "array", "items": {"$ref": "#/$defs/line"}},
        tuple[AmdDevice, ...]: {"type": "array", "items": {"$ref": "#/$defs/amd_device"}},
        tuple[AmdLink, ...]: {"type": "array", "items": _AMD_LINKS},
    }
    properties = {}
    for one in fields(kind):
        hint = hints[one.name]
        bare = get_args(hint)[0] if isinstance(hint, UnionType) else hint
        pattern = AMD_PATTERNS.get(one.name)
        properties[one.name] = (
            {"type": "string", "pattern": pattern} if pattern else dict(plain[bare])
        )
    required = [one.name for one in fields(kind) if one.default is MISSING]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "additionalProperties": False,
        "properties": properties,
    }


def _schema(hint: Any, rule: FactRule) -> dict[str, Any]:
    values = rule.values or tuple((rule.words or {}).values() if rule.is_optional else ())
    if values:
        return {"enum": [*values, "unknown"]}
    if hint == tuple[MigInstance, ...]:
        return {"type": "array", "items": {"$ref": "#/$defs/instance"}}
    if hint == tuple[str, ...]:
        return {"type": "array", "items": {"type": "string", "pattern": rule.pattern}}
    if rule.pattern:
        return {"type": "string", "pattern": rule.pattern}
    return dict(_PLAIN[hint])


def stub_facts() -> str:
    """Return the stub's table: a line for each fact that NVML is asked for."""
    hints, rules = get_type_hints(Gpu), fact_rules(Gpu)
    return _STUB_HEAD + "".join(f"{_line(name, hints, rules)}\n" for name in QUESTIONS)


def _line(name: str, hints: dict[str, Any], rules: dict[str, FactRule]) -> str:
    rule = rules[name]
    if not rule.nvml:
        return f"FACT({name})"
    is_text = hints[name] == str | None and rule.words is None
    kind = "TEXT" if is_text else "SETTING" if rule.is_optional else "NUMBER"
    return f"{kind}_FACT({name}, {rule.nvml})"
