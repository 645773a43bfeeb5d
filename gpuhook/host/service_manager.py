# SPDX-License-Identifier: Apache-2.0
"""Messages to systemd about the state of a service: sd_notify(3)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SOCKET_ENV = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Send a state, such as READY=1, if systemd waits for it; a message that fails is lost."""
    path = os.environ.get(_SOCKET_ENV, "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.sendto(state.encode(), address)
