# SPDX-License-Identifier: Apache-2.0
"""gpuhook on a real GPU: inventory, CDI spec, containers that compute, time slicing."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.installation import Installation, asks
from tests.demo import demo_node
from tests.waiting import eventually

pytestmark = [pytest.mark.gpu, pytest.mark.contract]
UUID = re.compile(r"GPU-[0-9a-f-]{36}")
ALLOCATED = 64 << 20  # bytes, by cuda_probe.c
SOURCE = Path(__file__).with_name("cuda_probe.c")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook installed on this machine's node."""
    installation, is_real = demo_node.demo_installation(tmp_path_factory.mktemp("real") / "gpuhook")
    if not is_real:
        pytest.skip("this machine has no NVIDIA GPU")
    return installation


def computing(installation: Installation, place: Path, value: str, seconds: int = 0) -> Bundle:
    """Return a bundle whose container opens a CUDA context on its GPU."""
    root = roots.copy("debian", place / "root")
    command = ["gcc", "-O2", "-o", str(root / "cuda_probe"), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return bundle(place / "bundle", root, ["/cuda_probe", str(seconds)], asks(value))


def test_inventory_has_the_gpus_of_nvidia_smi(real: Installation) -> None:
    smi = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    listed = real.gpuhook("inventory", "-o", "json").stdout
    assert set(UUID.findall(smi)) == set(UUID.findall(listed))


def test_nvidia_smi_in_a_container(real: Installation, tmp_path: Path) -> None:
    """It lists exactly the requested GPU."""
    uuid = str(real.gpu(0).uuid)
    root = roots.copy("debian", tmp_path / "root")
    made = bundle(tmp_path / "bundle", root, ["nvidia-smi", "-L"], asks(uuid))
    result = real.run(made)
    assert result.rc == 0, result
    assert UUID.findall(result.stdout) == [uuid]


def test_cuda_context_in_a_container(real: Installation, tmp_path: Path) -> None:
    """CUDA finds one device."""
    result = real.run(computing(real, tmp_path, "0"))
    assert result.rc == 0, result
    assert result.stdout.startswith("cuda 1 ")


def test_two_replicas_compute_at_once(real: Installation, tmp_path: Path) -> None:
    """The containers share one GPU, and `ps` lists both replicas."""
    uuid = real.gpu(0).uuid
    with ExitStack() as stack:
        containers = []
        for number in range(2):
            made = computing(real, tmp_path / str(number), f"{uuid}::{number}", seconds=30)
            container = real.lifecycle(made)
            containers.append(stack.enter_context(container))
            containers[-1].start()
        eventually(lambda: all(c.output for c in containers), "a line of each", 30)
        assert [c.output.split()[:2] for c in containers] == [["cuda", "1"], ["cuda", "1"]]
        listed = real.gpuhook("ps", "-o", "json").document("ps")["containers"]
        # Entries of other tests remain: their runtime's state was removed with its directory.
        own = [one for one in listed if one["bundle"].startswith(f"{tmp_path}/")]
        assert [one["replicas"] for one in own] == [[f"{uuid}::0"], [f"{uuid}::1"]]
        for container in own:
            [usage] = container["usage"]
            assert usage["used"] >= ALLOCATED, container


def test_unassigned_gpu_cannot_be_opened(real: Installation, tmp_path: Path) -> None:
    """The device cgroup denies the node of a GPU that the container does not have."""
    if len(real.node.node.gpus) < 2 or shutil.which("runc") is None:
        pytest.skip("needs a second GPU")
    root = roots.copy("debian", tmp_path / "root")
    made = bundle(tmp_path / "bundle", root, ["/probe", "--try", real.number(1)], asks("0"))
    view = real.run(made).view
    assert view.tries == {real.number(1): "EPERM"}
