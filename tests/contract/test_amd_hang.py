# SPDX-License-Identifier: Apache-2.0
"""A create while the amdgpu driver holds back its files: a FUSE file system never answers.

A container that requests an AMD GPU is refused within a limit; no other container notices.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract import fuse
from tests.contract.amd_installation import AmdInstallation, asks_amd, beside_nvidia
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks

GENERATION = "sys/class/kfd/kfd/topology/generation_id"
KFD_GPU = "sys/class/kfd/kfd/topology/nodes/2/gpu_id"
MODE = "sys/module/amdgpu/drivers/pci:amdgpu/0000:05:00.0/current_compute_partition"


@pytest.fixture
def node(node8: Installation, tmp_path: Path) -> AmdInstallation:
    """Return a node with a T4 and eight MI300X."""
    return beside_nvidia(tmp_path, "mi300x8", node8)


def test_other_containers_start(node: AmdInstallation, bundle_of: Bundles, tmp_path: Path) -> None:
    """Nothing is read of AMD's driver for a container without a request to it."""
    with fuse.silent(tmp_path, str(node.amd.root / GENERATION)) as silent:
        for requests in ([], asks("0"), asks_amd("none")):
            done = node.run(bundle_of("debian", ["/probe"], requests))
            assert done.rc == 0, done
        assert not silent.is_asked()


@pytest.mark.thorough
@pytest.mark.parametrize("file", [GENERATION, MODE, KFD_GPU])
@pytest.mark.parametrize("is_own", [True, False])
def test_request_is_refused(
    file: str, is_own: bool, node: AmdInstallation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """One error, also with another program's CDI spec, which has no token to compare."""
    if not is_own:
        document = json.loads(node.amd_spec.read_text("utf-8"))
        document.pop("annotations")
        node.amd_spec.write_text(json.dumps(document), "utf-8")
    bundle = bundle_of("debian", ["/probe"], asks_amd("0"))
    before = bundle.file.read_bytes()
    with fuse.silent(tmp_path, str((node.amd.root / file).resolve())) as silent:
        done = node.run(bundle)
        assert silent.is_asked()
    assert done.rc == 1, done
    lines = [line for line in done.stderr.splitlines() if "GH" in line]
    assert len(lines) == 1, done
    assert "GH2561: the amdgpu driver did not answer within 10 seconds" in lines[0]
    assert bundle.file.read_bytes() == before
    assert node.run(bundle).rc == 0
