# SPDX-License-Identifier: Apache-2.0
"""Specs as the programs of vendors, shell scripts, and people write them are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuhook.cdi import spec_file

# Names of devices without quotes, as scripts write them, and the values of hooks and mounts.
NAMES = {
    "nvidia-ctk": ['"0"', "GPU-8d6f8a3e-0f1c-4d2b-9f3a-1e5e2c7b9a10", "all", '"0:0"'],
    "nvidia-ctk, MIG": ["MIG-5e1f2c3d-0000-5e10-8000-000000000000", "0:1", '"1:0"'],
    "imex channels": ['"2047"', "2047"],
    "claims of DRA drivers": ["c8593c85-440d-4156-b199-aea592ff83df-gpu-0-mig-1g18gb-19-0"],
    "amd-ctk": ["0", "all", '"0x5e10"'],
    "intel": ["gpu0", "0000-03-00-0-0x56a6", "npu0", "card1"],
    "habana": ["accel0", '"3"', "hl0"],
    "pci": ["0000:03:00.0", "0000:5e:00.0", "03:00.0", "5e:00.0"],
    "jetson, WSL": ["all", "dla0", "pva0", "gpu-0"],
    "other": ["ttyUSB0", "vfio-42", "fpga_1", "eth0", "10.0.0.1", "myDevice", "renderD128"],
}
ARGUMENTS = [
    "nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib64", "--mode", '"755"', "755",
    "../card1::/dev/dri/by-path/pci-0000:00:05.0-card", "libcuda.so.1::/usr/lib/libcuda.so",
    "--host-driver-version=550.54.15", "--link", "-1", "true", "1.5",
]  # fmt: skip
TEXT = """\
---
cdiVersion: {version}
kind: example.com/gpu
devices:
    - name: {name}
      containerEdits:
        deviceNodes:
            - path: /dev/dri/card0
              hostPath: /dev/dri/card0
              type: c
              major: 226
              minor: 0
              fileMode: {mode}
              permissions: {permissions}
              uid: 0
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
          args: [{argument}]
          timeout: 5
    mounts:
        - hostPath: /run/nvidia-persistenced/socket
          containerPath: /run/nvidia-persistenced/socket
          options: [ro, nosuid, nodev, rbind, rprivate, noexec, mode=755]
"""


def text(**changes: str) -> str:
    """Return a spec with these values."""
    usual = {"name": "a", "version": "0.5.0", "mode": "438", "permissions": "rw", "argument": "x"}
    return TEXT.format_map(usual | changes)


@pytest.mark.parametrize("name", [name for names in NAMES.values() for name in names])
def test_names_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text(name=name))
    assert spec_file.read(str(path))["devices"][0]["name"] == name.strip('"')


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_arguments_are_read(tmp_path: Path, argument: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text(argument=argument))
    [hook] = spec_file.read(str(path))["containerEdits"]["hooks"]
    assert hook["args"] == [argument.strip('"')]


@pytest.mark.parametrize("version", ["0.5.0", '"0.6.0"', "'0.7.0'", "1.0.0"])
@pytest.mark.parametrize("permissions", ["r", "rw", "rwm", '"rw"'])
def test_versions_and_permissions_are_read(tmp_path: Path, version: str, permissions: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text(version=version, permissions=permissions))
    assert spec_file.read(str(path))["cdiVersion"] == version.strip("\"'")


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_json_of_programs_is_read(tmp_path: Path, indent: int | str | None, ends: str) -> None:
    """Go writes < as an escape; templates have tabs; files come from editors of Windows."""
    edits = {"env": ["A=<é>"], "hooks": [], "mounts": None}
    devices = [{"name": "TesterDevice", "containerEdits": edits}]
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": devices}
    written = json.dumps(spec, indent=indent, ensure_ascii=False).replace("<", "\\u003c")
    path = tmp_path / "x.json"
    path.write_text(written.replace("\n", ends), encoding="utf-8", newline="")
    assert spec_file.read(str(path))["devices"][0]["containerEdits"]["env"] == ["A=<é>"]
