# SPDX-License-Identifier: Apache-2.0
"""The answers of the device plugin that need the driver."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.kubernetes import answering
from gpuhook.kubernetes.answering import Answering, Known
from gpuhook.kubernetes.configuration import Configuration
from gpuhook.kubernetes.devices import Device, Resource, Unit
from gpuhook.vendors.nvidia.topology import Topology

GIB = 1 << 30
RESOURCE = Resource("nvidia.com/gpu", (Unit("GPU-0", Device("GPU-0", "0", "GPU-0", 0, (), ())),))


def known(least: int = 4 * GIB, **unhealthy: str) -> Known:
    made = Configuration()
    made = replace(made, own=replace(made.own, min_free_memory=least))
    bad = {uuid.replace("_", "-"): reason for uuid, reason in unhealthy.items()}
    return Known(Topology(), made, unhealthy=bad)


def test_driver_that_hangs_refuses_nothing_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "_TELLS_WITHIN", 0.05)
    gate = threading.Event()

    def hang(_uuid: str) -> int | None:
        gate.wait()
        return 0

    asyncio.run(Answering(known(), hang).pre_start(RESOURCE, ["GPU-0"]))
    assert not gate.is_set()
    gate.set()


def test_container_without_room_is_refused() -> None:
    with pytest.raises(GpuhookError) as refused:
        asyncio.run(Answering(known(), lambda _uuid: GIB).pre_start(RESOURCE, ["GPU-0"]))
    assert refused.value.code == "GH1858"


def test_unhealthy_device_is_refused_without_a_question() -> None:
    def free(_uuid: str) -> int | None:
        raise AssertionError

    answering_known = Answering(known(GPU_0="XID 79"), free)
    with pytest.raises(GpuhookError) as refused:
        asyncio.run(answering_known.pre_start(RESOURCE, ["GPU-0"]))
    assert refused.value.code == "GH1857"
