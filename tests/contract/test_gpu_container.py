# SPDX-License-Identifier: Apache-2.0
"""The container that proves `gpuhook setup`, by real runtimes and podman."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.engines.configure.configure_engine import EngineResult, Where
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.engines.configure.host_files import Host
from gpuhook.errors import GpuhookError
from gpuhook.setup import gpu_container
from gpuhook.setup.setup_plan import EngineStep
from gpuhook.vendors.gpu_summary import ProofDevice
from gpuhook.vendors.nvidia.gpu.nvidia_summary import SMI
from tests.contract.installation import Installation, installation
from tests.contract.runtimes import launcher
from tests.simulated import build


@pytest.fixture(scope="module")
def smi(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node whose nvidia-smi lists the GPUs that it can open."""
    made = installation(tmp_path_factory.mktemp("smi"), bindir=bindir)
    shutil.copy(build.smi_list(made.node.node.gpus), program(made))
    return made


def program(made: Installation) -> str:
    """Return the path of the node's nvidia-smi."""
    files = made.node.node.files
    return next(one.host_path for one in files if one.container_path == "/usr/bin/nvidia-smi")


def step(made: Installation, place: Path, engine: str) -> EngineStep:
    """Return the step of an engine whose runtime is this installation's."""
    path = str(launcher(place / "gpuhook-runtime", [made.runtime], made.on("runc")))
    options = EngineOptions("wrapper", path, path, "/usr/bin/gpuhook-prestart")
    return EngineStep(engine, Where(engine), options, EngineResult(engine, (), ()))


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[None]:
    """Let podman set the limits that this machine permits: its default is higher."""
    place = tmp_path / "etc-containers"
    shutil.copytree("/etc/containers", place, symlinks=True)
    text = 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
    with (place / "containers.conf").open("a", encoding="utf-8") as file:
        file.write(f"[containers]\n{text}")
    subprocess.run(["mount", "--bind", place, "/etc/containers"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "/etc/containers"], check=True)


@pytest.mark.parametrize("engine", ["containerd", "podman"])
def test_container_sees_its_gpu(
    smi: Installation, tmp_path: Path, engine: str, limits: None
) -> None:
    """nvidia-smi lists exactly the requested GPU; nothing of the container remains."""
    made = step(smi, tmp_path, engine)
    files = (str(program(smi)), str(smi.node.nvml_library))
    before = images()
    uuids = {index: str(smi.gpu(index).uuid) for index in (0, 1, 5)}
    for index in (0, 5):
        uuid = uuids[index]
        device = ProofDevice(str(index), uuid, SMI, files)
        proof = gpu_container.prove(made, device, Host())
        assert [line for line in proof.lines if "UUID" in line] == [
            f"{smi.device(index)}: Simulated (UUID: {uuid})"
        ]
    with pytest.raises(GpuhookError, match=f"it sees {uuids[5]}") as caught:
        gpu_container.prove(made, ProofDevice("5", uuids[1], SMI, files), Host())
    assert caught.value.code == "GH2115"
    with pytest.raises(GpuhookError, match="status ") as caught:
        gpu_container.prove(made, ProofDevice("99", uuids[0], SMI, files), Host())
    assert caught.value.code == "GH2115"
    assert images() == before


def images() -> list[str]:
    """Return podman's images and containers."""
    words = (["images", "--all", "--quiet"], ["ps", "--all", "--quiet"])
    return [subprocess.check_output(["podman", *one], text=True) for one in words]
