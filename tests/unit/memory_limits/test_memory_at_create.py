# SPDX-License-Identifier: Apache-2.0
"""What a create writes for a container with a memory limit: hints by backend, and the hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi.hot.registry import Registry
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.host.hot.settings import Settings
from gpuhook.memory_limits.hot import create_limits
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

GPU = "GPU-3d2b7a51-0000-0000-0000-000000000000"
MIG = "MIG-3d2b7a51-0000-0000-0000-000000000000"
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
PYTORCH = "PYTORCH_ALLOC_CONF"
BYTES, GROWTH = "CUPY_GPU_MEMORY_LIMIT", "TF_FORCE_GPU_ALLOW_GROWTH"


class NodeWith(NvidiaNode):
    """This node with a given NVML library."""

    def __init__(self, settings: Settings, library: str) -> None:
        super().__init__(settings, lambda _vendor, _way: Registry([], []))
        self._library = library

    def driver_library(self) -> str:
        return self._library


class Node:
    """A node with a driver of a version, and with gpuhook installed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.settings = Settings()
        self.settings.limits_on_failure = "start"
        self.settings.limits_hints = ["jax", "pytorch", "cupy", "tensorflow"]
        self.log = EngineLog("test", str(place / "log"))
        (place / "gpuhook-hook").touch(mode=0o755)

    def created(
        self, version: str, device: str = GPU, limit: int = 4096, granted: int = 0
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the variables that are set, and the config.json."""
        library = self.place / f"libnvidia-ml.so.{version}"
        library.touch()
        link = self.place / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
        found = NodeWith(self.settings, str(link))
        context = PlanContext(self.settings, found, self.log)
        spec: dict[str, Any] = {"process": {"env": [f"{VOCABULARY.memory_limit_env}={limit}"]}}
        if granted:
            path = f"{VOCABULARY.memory_prefix}/{device},hard={granted},soft={granted}"
            spec["mounts"] = [{"destination": path, "source": "/dev/null"}]
        names = [f"nvidia.com/gpu={device}"]
        _, entries = create_limits.add(
            spec, [], names, context, str(self.place / "gpuhook-runtime"), root="/run/x"
        )
        return dict(entry.split("=", 1) for entry in entries), spec


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Give a node with cgroup v2 whose GPU has 16 GiB."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(mode=0o755)
    known = [{"uuid": name, "minor": 0, "memory_bytes": 16 << 30} for name in (GPU, MIG)]
    (tmp_path / "state/node.json").write_text(json.dumps({"gpus": known}), encoding="utf-8")
    (tmp_path / "controllers").touch()
    monkeypatch.setattr(create_limits, "_V2", str(tmp_path / "controllers"))
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("version", "device", "is_told"),
    [
        ("615.71.09", GPU, True),
        ("1000.1", GPU, True),
        ("580.95.05", GPU, False),
        ("1", GPU, False),
        ("615.71.09", MIG, False),
    ],
)
def test_hints_depend_on_the_driver(version: str, device: str, is_told: bool, node: Node) -> None:
    """A driver that enforces the limit reports it as the total: it gets no fraction of the card."""
    found, _ = node.created(version, device)
    fractions = set() if is_told else {FRACTION, PYTORCH}
    assert set(found) == {BYTES, GROWTH} | fractions
    assert found[BYTES] == str(3840 << 20)


@pytest.mark.parametrize("missing", ["controllers", "gpuhook-hook"])
def test_hints_if_the_driver_cannot_enforce_the_limit(
    missing: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new driver enforces nothing on cgroup v1, or without the hook."""
    (node.place / missing).unlink()
    monkeypatch.setattr("gpuhook.host.hot.state.PROGRAM_DIRS", ())
    found, spec = node.created("615.71.09")
    assert {FRACTION, PYTORCH} < set(found)
    assert "hooks" not in spec


@pytest.mark.parametrize(
    ("missing", "code"), [("controllers", "GH1312"), ("gpuhook-hook", "GH1646")]
)
def test_required_limit_that_cannot_be_set_refuses_the_container(
    missing: str, code: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.place / missing).unlink()
    monkeypatch.setattr("gpuhook.host.hot.state.PROGRAM_DIRS", ())
    node.settings.limits_on_failure = "refuse"
    with pytest.raises(GpuhookError) as refused:
        node.created("615.71.09")
    assert refused.value.code == code


@pytest.mark.parametrize("guarantee", ["auto", "always", "never"])
def test_guarantee_is_an_argument_of_the_hook(guarantee: str, node: Node) -> None:
    """With the default, the hook has no such argument."""
    node.settings.limits_guarantee = guarantee
    _, spec = node.created("615.71.09")
    (hook,) = spec["hooks"]["createRuntime"]
    words = " ".join(hook["args"])
    assert ("--guarantee" in words) == (guarantee != "auto")
    assert (f"--guarantee {guarantee}" in words) == (guarantee != "auto")


def test_hook_gets_the_grant_of_a_narrowed_limit(node: Node) -> None:
    """With onFailure start: the driver may refuse the narrowed limit."""
    _, spec = node.created("615.71.09", limit=100, granted=4096)
    (hook,) = spec["hooks"]["createRuntime"]
    at = hook["args"].index("--grant")
    assert hook["args"][at + 1] == f"{GPU}={4096 << 20},{4096 << 20}"
    _, spec = node.created("615.71.09", limit=4096, granted=4096)
    assert "--grant" not in spec["hooks"]["createRuntime"][0]["args"]
    node.settings.limits_on_failure = "refuse"
    _, spec = node.created("615.71.09", limit=100, granted=4096)
    assert "--grant" not in spec["hooks"]["createRuntime"][0]["args"]


@pytest.mark.parametrize(("limit", "is_told"), [(5, True), (255, True), (256, False)])
def test_limit_too_small_for_a_context_is_a_warning(limit: int, is_told: bool, node: Node) -> None:
    node.created("615.71.09", limit=limit)
    log = node.place / "log"
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    assert ("GH1025" in text) is is_told
    assert not is_told or f"a memory limit of {limit}Mi on {GPU}" in text
