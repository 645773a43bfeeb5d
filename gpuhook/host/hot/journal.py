# SPDX-License-Identifier: Apache-2.0
"""One message to the node's journal, or to its syslog if there is no journal.

Loaded only for a warning. A datagram is sent without waiting: if the logging daemon does not read,
the message is lost. The socket module costs 5 ms, its C part almost nothing.

The id of the container has its own field, GPUHOOK_CONTAINER: engines find a container's output by
CONTAINER_ID and CONTAINER_ID_FULL.

Sources: systemd's "Native Journal Protocol"; RFC 3164.
"""

from __future__ import annotations

import os

JOURNAL = "/run/systemd/journal/socket"
SYSLOG = "/dev/log"
_WARNING = 4
_DAEMON = 3  # facility


def send(program: str, code: str, text: str, container: str) -> None:
    """Send a warning about the container with this id, "" if it is unknown.

    All of it is printable text on one line: a line feed would begin another field or message.
    """
    try:
        from _socket import AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_DGRAM, socket
    except ImportError:  # an interpreter without the module
        return
    line = f"container {container}: {text}" if container else text
    fields = {
        "MESSAGE": line,
        "PRIORITY": _WARNING,
        "SYSLOG_FACILITY": _DAEMON,
        "SYSLOG_IDENTIFIER": program,
        "GPUHOOK_CODE": code,
        "GPUHOOK_CONTAINER": container,
    }
    native = "".join(f"{name}={value}\n" for name, value in fields.items() if value != "")
    classic = f"<{_DAEMON * 8 + _WARNING}>{program}[{os.getpid()}]: {line}"
    for path, message in ((JOURNAL, native), (SYSLOG, classic)):
        try:
            channel = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC)
            try:
                channel.sendto(message.encode(), MSG_DONTWAIT | MSG_NOSIGNAL, path)
            finally:
                channel.close()
        except OSError:
            continue  # no daemon has this socket, or it does not read
        return
