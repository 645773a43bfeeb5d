# SPDX-License-Identifier: Apache-2.0
"""Pods of a containerd that starts with the handlers that configure wrote.

The integrations wrapper and hook are two handlers of one containerd.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.engines.configure.containerd import base_spec, configure_containerd, containerd_handler
from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.contract.cri import Cri, cri
from tests.contract.installation import CONTROL, Installation
from tests.contract.runtimes import launcher

pytestmark = pytest.mark.contract


def configure(config: Path, wanted: EngineOptions, base_spec: bytes | None = None) -> None:
    """Write the changes of a plan, as `gpuhook configure` does."""
    node = EngineNode(DirectoryTree("/"), (1, 6, 20), config=str(config), base_spec=base_spec)
    for change in configure_containerd.plan(node, wanted).changes:
        assert change.path.startswith(str(config.parent))
        assert change.after is not None
        Path(change.path).write_bytes(change.after)


@pytest.fixture(scope="module")
def node(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cri, Installation]]:
    """Yield a containerd with the configured handlers `nvidia` and `hooked`."""
    place = tmp_path_factory.mktemp("configured")
    made = node8.apart(place / "gpuhook")
    runtime = made.launcher(place / "gpuhook-runtime")
    hook = launcher(
        place / "gpuhook-prestart", [str(made.bindir / "gpuhook-prestart")], made.on("runc")
    )
    spec = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True).stdout
    base = str(place / "containerd/gpuhook-base.json")

    def configured(config: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:  # the machine's /etc/containerd is left alone
            patch.setattr(containerd_handler, "BASE_SPEC", base)
            patch.setattr(base_spec, "BASE_SPEC", base)
            configure(config, EngineOptions("wrapper", "nvidia", str(runtime), str(hook)))
            configure(config, EngineOptions("hook", "hooked", str(runtime), str(hook)), spec)

    with cri(place / "containerd", {"runc": "/usr/sbin/runc"}, configured) as server:
        yield server, made


@pytest.mark.parametrize("handler", ["nvidia", "hooked"])
def test_pod_gets_its_gpu_by_the_configured_handler(
    handler: str, node: tuple[Cri, Installation]
) -> None:
    server, made = node
    allocation = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": str(made.gpu(1).uuid)})
    with server.pod(f"configured-{handler}", handler) as pod:
        nodes = server.view(pod, allocation).gpus()
        assert set(nodes) == {*CONTROL, made.device(1)}
        assert all(entry.allowed for entry in nodes.values())


def test_pod_of_the_default_handler_gets_no_gpu(node: tuple[Cri, Installation]) -> None:
    server, made = node
    allocation = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": str(made.gpu(1).uuid)})
    with server.pod("plain", "") as pod:
        assert server.view(pod, allocation).gpus() == {}
