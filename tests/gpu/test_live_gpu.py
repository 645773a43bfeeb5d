# SPDX-License-Identifier: Apache-2.0
"""A real GPU in an existing container: by the prestart hook, by attach, and after a reload."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.device_side import evaluate
from tests.contract.installation import Installation, asks
from tests.contract.live import prestart, sleeping, started, wrapped
from tests.gpu.test_real_gpu import real

__all__ = ["real"]
pytestmark = [pytest.mark.gpu, pytest.mark.contract]
UUID = re.compile(r"GPU-[0-9a-f-]{36}")
LIST = ["nvidia-smi", "-L"]


def test_gpu_by_the_prestart_hook(real: Installation, tmp_path: Path) -> None:
    """A plain runc container with the hook has exactly the GPU that it requests."""
    uuid = str(real.gpu(0).uuid)
    made = sleeping(tmp_path, env=asks(uuid), hooks=prestart(real))
    with started(made, real) as live:
        assert UUID.findall(live.inside(*LIST).stdout) == [uuid]


def test_repair_after_a_reload(real: Installation, tmp_path: Path) -> None:
    """Without its device rules nvidia-smi fails; after a repair it works."""
    uuid = str(real.gpu(0).uuid)
    made = sleeping(tmp_path, env=asks(uuid))
    with wrapped(made, real) as live:
        assert UUID.findall(live.inside(*LIST).stdout) == [uuid]
        evaluate(live.container, f"rules.change([], deny('c 195:255 rw', 'c {real.number(0)} rw'))")
        done = live.inside(*LIST)
        assert "Failed to initialize NVML: Unknown Error" in done.stdout + done.stderr
        assert live.report("repair")["steps"] != []
        assert UUID.findall(live.inside(*LIST).stdout) == [uuid]


def test_attach_and_detach(real: Installation, tmp_path: Path) -> None:
    """A running container without GPUs gets one, and loses it again."""
    uuid = str(real.gpu(0).uuid)
    with started(sleeping(tmp_path), real) as live:
        live.attach(uuid)
        assert UUID.findall(live.inside(*LIST).stdout) == [uuid]
        live.detach(uuid)
        assert live.inside(*LIST).rc != 0
