# SPDX-License-Identifier: Apache-2.0
"""A vendor's GPUs in a few words, and how a container proves that it has one of them."""

from __future__ import annotations

from dataclasses import dataclass

NO_DEVICE = "no GPU of this node has an index and a UUID"


@dataclass(frozen=True, slots=True)
class ProofWay:
    """How a container requests a device, and prints its devices.

    `variable` and `kind` are those of requests, `runtime` the usual name of the runtime. The first
    group of `pattern` is the id of a device in the output of `program`, which is the host's if it
    is in `copies`, else the driver's. The names of the driver's libraries start as in `libraries`.
    """

    variable: str
    kind: str
    runtime: str
    program: tuple[str, ...]
    pattern: str
    copies: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProofDevice:
    """The device that a container gets to prove the setup: a GPU, or a part of one.

    `name` requests it, and `id` is what the container prints. `files` are those of the driver on
    the host that the container's program needs.
    """

    name: str
    id: str
    way: ProofWay
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """The driver, the GPUs by model, and a device that a container can get to prove it.

    `no_device` is why there is no such device.
    """

    driver: str
    gpus: tuple[str, ...]
    device: ProofDevice | None = None
    no_device: str = NO_DEVICE
