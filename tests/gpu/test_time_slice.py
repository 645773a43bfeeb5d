# SPDX-License-Identifier: Apache-2.0
"""The time slice and the compute mode of a real GPU.

The tests set nothing: other programs may use the GPU.
"""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.gpu import compute_mode, compute_policy
from gpuhook.vendors.nvidia.gpu.compute_policy import Smi
from gpuhook.vendors.nvidia.warm.nvml_constants import COMPUTE_MODES, TIME_SLICES
from tests.contract.installation import Installation
from tests.gpu.test_real_gpu import real

__all__ = ["real"]
pytestmark = [pytest.mark.gpu, pytest.mark.contract]


def test_time_slice_is_read(real: Installation) -> None:
    """The table of `nvidia-smi compute-policy --list` is parsed, for one GPU and for all."""
    node = real.node.node
    program = driver_locations.program_path(node, compute_policy.PROGRAM)
    smi = Smi(program, str(node.driver.nvml))
    try:
        value = compute_policy.time_slice(smi, str(real.gpu(0).uuid))
    except GpuhookError as error:
        if error.code in ("GH1261", "GH1262"):
            pytest.skip(error.message)
        raise
    assert value in TIME_SLICES
    assert compute_policy.time_slices(smi)[0] == value


def test_compute_mode_is_read(real: Installation) -> None:
    library = (str(real.node.node.driver.nvml), real.node.node.driver.module_version)
    assert compute_mode.compute_mode(library, str(real.gpu(0).uuid)) in COMPUTE_MODES.values()
