# SPDX-License-Identifier: Apache-2.0
"""Every reader of NRI's messages, for tests with any bytes."""

from __future__ import annotations

from typing import Any

from gpuhook.nri.wire import nri_messages
from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox, RuntimeFacts
from gpuhook.nri.wire.protobuf_wire import Message, WireError


def readings(data: bytes) -> list[Any]:
    """Return what each reader makes of the bytes; WireError for those that refuse them."""
    found: list[Any] = []
    readers: list[Any] = [
        lambda: NriContainer(Message(data)).spec,
        lambda: PodSandbox(Message(data)).annotations,
        lambda: RuntimeFacts(memoryview(data)).version,
        lambda: nri_messages.create_parts(memoryview(data)),
        lambda: nri_messages.synchronized(memoryview(data)),
        lambda: nri_messages.pod_identity(memoryview(data)),
    ]
    for reader in readers:
        try:
            found.append(reader())
        except WireError as error:
            found.append(error)
    return found
