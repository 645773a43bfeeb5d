# SPDX-License-Identifier: Apache-2.0
"""Specs with `--hooks none`, for engines and hosts that run no program of gpuhook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.contract import roots
from tests.contract.installation import ALL_CONTROL, DRIVER_LIBRARIES, KIND, Installation
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES
from tests.contract.views import questions

VDPAU = "libvdpau_nvidia.so.1"


@pytest.fixture
def hookless(apart: Installation) -> Installation:
    """Return a node with such a spec, whose hook path does not exist."""
    apart.generate("--hooks", "none", "--hook-path", "/no/such/hook")
    return apart


@ENGINES
@pytest.mark.parametrize("kind", roots.KINDS)
def test_podman_provides_gpu_and_driver_without_hooks(
    kind: str, engine: str, hookless: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman provides the GPU, and the loader finds the driver by each name."""
    probe_questions = questions(
        tries=[hookless.number(1), hookless.number(2)],
        runs=[["/dlprobe", *DRIVER_LIBRARIES, "libcuda.so", "libnvcuvid.so", VDPAU]],
    )
    result = Integrations(hookless, tmp_path).by_podman(
        root_of(kind),
        ["/probe", *probe_questions],
        ["--device", f"{KIND}=2"],
        f"/usr/bin/{engine}",
        engine,
    )
    view = result.view
    assert set(view.gpus()) == {*ALL_CONTROL, hookless.device(2)}
    assert view.tries[hookless.number(1)] == "EPERM"
    assert view.tries[hookless.number(2)] != "EPERM"
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    (ran,) = view.runs
    assert [name for name, found in ran.found().items() if "real" not in found] == []
    for found in ran.found().values():
        assert {"ro", "nosuid", "nodev"} <= view.mounts[found["real"]].options
    assert hookless.entries() == []


def test_spec_without_hooks_names_no_program(hookless: Installation) -> None:
    """The spec has no hook and names no program of gpuhook."""
    document = yaml.safe_load(hookless.spec.read_text(encoding="utf-8"))
    every = [document["containerEdits"], *(d["containerEdits"] for d in document["devices"])]
    assert not any("hooks" in edits for edits in every)
    text = json.dumps([edits.get("mounts") for edits in every])
    assert str(hookless.bindir) not in text
    assert "gpuhook-hook" not in text


def test_wrapper_applies_a_spec_without_hooks(
    hookless: Installation, tmp_path: Path, root_of: Roots
) -> None:
    command = ["/probe", *questions(runs=[["/dlprobe", *DRIVER_LIBRARIES]])]
    enter = Integrations(hookless, tmp_path)
    view = enter.through("runc", root_of("debian"), command, "2").view
    assert hookless.device(2) in view.gpus()
    assert all("real" in found for found in view.runs[0].found().values())
