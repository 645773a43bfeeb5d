# SPDX-License-Identifier: Apache-2.0
"""Running containers that lost their GPUs or never had them."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuhook.errors import fault
from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import Broken
from tests.doctor.parts.gpuhook import container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError
    from tests.doctor.case import FaultCase


def reading_of(error: GpuhookError) -> dict[str, str]:
    """Return a fault in the form of a reading."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def running(case: FaultCase, **facts: Any) -> None:
    """Add a running container."""
    case.readings[node_readings.CONTAINERS]["containers"].append(container("broken", **facts))


def denied(case: FaultCase, **facts: Any) -> None:
    lost = fault("GH1744", container="broken", nodes="/dev/nvidiactl, /dev/nvidia0")
    running(case, missing=[reading_of(lost)], **facts)


def lost_pieces(case: FaultCase) -> None:
    lost = fault("GH1740", container="broken", what="device node /dev/nvidia0")
    running(case, missing=[reading_of(lost)], repairable=True)


def other_driver(case: FaultCase) -> None:
    wrong = fault("GH1741", container="broken", mounted="535.104.05", now="580.95.05")
    running(case, findings=[reading_of(wrong)], engine="docker")


def removed(case: FaultCase) -> None:
    wrong = fault("GH1742", container="broken", path="/usr/lib64/libcuda.so.535", count=12)
    running(case, findings=[reading_of(wrong)])


def unheard(case: FaultCase) -> None:
    wrong = fault("GH1745", container="broken", request="NVIDIA_VISIBLE_DEVICES=all")
    pod = {"pod": "train-0", "namespace": "ml", "container": "main"}
    running(case, findings=[reading_of(wrong)], injected_by=[], **pod)


def unreadable(case: FaultCase) -> None:
    late = fault("GH1760", container="broken", seconds=5, left="")
    case.readings[node_readings.CONTAINERS]["trouble"].append(
        {"where": "broken", **reading_of(late)}
    )


NVIDIA: dict[str, Any] = {"injected_by": ["nvidia-legacy"], "recorded": False, "engine": "docker"}

BROKEN = [
    Broken("access lost", "containers.access", partial(denied, repairable=True)),
    Broken("access lost under NVIDIA's hook", "containers.access", partial(denied, **NVIDIA)),
    Broken("device node removed in a container", "containers.pieces", lost_pieces),
    Broken("driver upgraded under a container", "containers.driver", other_driver),
    Broken("driver's files replaced on the node", "containers.files", removed, is_warning=True),
    Broken("container asked in vain", "containers.request", unheard, is_warning=True),
    Broken(
        "given by two stacks",
        "containers.stacks",
        partial(running, injected_by=["gpuhook", "nvidia-legacy"]),
        is_warning=True,
    ),
    Broken("container does not answer", "containers.state", unreadable, is_warning=True),
]
