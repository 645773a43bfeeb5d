# SPDX-License-Identifier: Apache-2.0
"""A comparison on a node with many CDI specs and devices reads each file of the node once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.apply.live.cgroup import cgroup_v1_devices
from gpuhook.apply.live.cgroup.cgroup_v1_devices import DeviceFiles
from gpuhook.cdi import spec_file
from gpuhook.compare import expected_injection
from gpuhook.host.hot.settings import Settings


def test_specs_of_others_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only specs that name a vendor of GPUs, or the kind of the settings, are parsed."""
    kinds = ["nvidia.com/gpu", "amd.com/gpu", "site.org/gpu", *(f"v{n}.com/x" for n in range(50))]
    for number, kind in enumerate(kinds):
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": []}
        (tmp_path / f"{number:02}.json").write_text(json.dumps(spec), encoding="utf-8")
    parsed: list[str] = []
    real = spec_file.parser

    def parser(path: str) -> Any:
        parsed.append(path)
        return real(path)

    monkeypatch.setattr(spec_file, "parser", parser)
    settings = Settings()
    settings.spec_dirs = [str(tmp_path)]
    (layer,) = expected_injection.read_specs(settings, "site.org/gpu", "")
    assert [spec["kind"] for _, spec in layer] == kinds[:3]
    assert len(parsed) == 3


def test_device_list_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules for the devices of the whole node come from one look at the container's cgroup."""
    looks = []

    def devices_list(path: str) -> list[str]:
        looks.append(path)
        return ["c 195:3 rw", "c 195:* m"]

    monkeypatch.setattr(cgroup_v1_devices, "devices_list", devices_list)
    numbers = [(195, minor) for minor in range(244)]
    found = DeviceFiles("/x").verdicts("c", numbers, "rw")
    assert [number for number, (allowed, _) in zip(numbers, found, strict=True) if allowed] == [
        (195, 3)
    ]
    assert looks == ["/x"]
