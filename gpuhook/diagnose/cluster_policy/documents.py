# SPDX-License-Identifier: Apache-2.0
"""What a file says that has a ClusterPolicy, or values of the GPU operator's chart.

Source: NVIDIA GPU Operator 25, nvidia.com/v1 ClusterPolicy, and the chart's values.yaml, whose
sections are those of the spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import yaml

from gpuhook.errors import fault
from gpuhook.host import bounded_yaml

# Sections by which values of the operator's chart are known.
_OF_VALUES = frozenset(
    ("cdi", "daemonsets", "devicePlugin", "driver", "gfd", "mig", "operator", "toolkit")
)
_BETWEEN = re.compile(rb"^---(?=\s|$)[^\n]*\n?", re.MULTILINE)
_MOST_DOCUMENTS = 100


@dataclass(frozen=True, slots=True)
class Policy:
    """The sections of a policy, and the data of the ConfigMaps beside it, by their names."""

    sections: dict[str, Any]
    is_values: bool = False
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)


def read(content: bytes, path: str) -> Policy:
    """Return what `content` says; GH2130 where that is no YAML or too much, GH2131 without one.

    `path` names the file in faults.
    """
    found = [one for one in _documents(content, path) if isinstance(one, dict)]
    policies = [one.get("spec") for one in found if one.get("kind") == "ClusterPolicy"]
    if len(policies) > 1:
        raise fault("GH2131", path=path, reason="it has more than one ClusterPolicy")
    maps = {
        str(one["metadata"].get("name")): {str(k): v for k, v in one["data"].items() if _is_text(v)}
        for one in found
        if one.get("kind") == "ConfigMap"
        and isinstance(one.get("metadata"), dict)
        and isinstance(one.get("data"), dict)
    }
    if policies:
        spec = policies[0]
        return Policy(_sections(spec if spec is not None else {}, path), config_maps=maps)
    values = [one for one in found if "kind" not in one and _OF_VALUES & one.keys()]
    if len(values) != 1:
        reason = "it has neither a ClusterPolicy nor sections of such values"
        raise fault("GH2131", path=path, reason=reason)
    return Policy(_sections(values[0], path), is_values=True, config_maps=maps)


def _documents(content: bytes, path: str) -> list[Any]:
    """Return the documents of a file, and the items of its lists."""
    parts = _BETWEEN.split(content)
    before = accumulate((part.count(b"\n") + 1 for part in parts), initial=0)  # lines
    texts = [(text, line) for text, line in zip(parts, before, strict=False) if text.strip()]
    if len(texts) > _MOST_DOCUMENTS:
        raise fault("GH2130", path=path, reason=f"it has more than {_MOST_DOCUMENTS} documents")
    found: list[Any] = []
    for text, above in texts:
        try:
            document, _ = bounded_yaml.read(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            line, column, reason = bounded_yaml.place_and_reason(error)
            place = f"line {above + line}, column {column}: " if line else ""
            raise fault("GH2130", path=path, reason=place + reason) from error
        items = document.get("items") if isinstance(document, dict) else None
        found += items if isinstance(items, list) else [document]
    return found


def _sections(document: Any, path: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise fault("GH2131", path=path, reason="its ClusterPolicy has a spec without sections")
    return {str(name): value for name, value in document.items()}


def _is_text(value: object) -> bool:
    return isinstance(value, str)
