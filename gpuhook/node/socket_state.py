# SPDX-License-Identifier: Apache-2.0
"""Whether a process listens on the sockets of DRA drivers: the reading `draSockets`."""

from __future__ import annotations

import errno
import os
import socket

from gpuhook.node_facts.sources import dra_files, kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

_SECONDS = 1.0
_MOST = 200


def socket_states(tree: Tree) -> dict[str, str]:
    """Return "" for each socket on which a process listens, else the reason; by path.

    A connection is made and closed at once: no call reaches the driver.
    """
    directory = kubelet_files.directory(tree)
    paths = dra_files.sockets(tree, directory)[:_MOST] if directory else []
    return {path: _trouble(f"{tree.root.rstrip('/')}{path}") for path in paths}


def _trouble(path: str) -> str:
    """Return why no process answers at a socket; a path may be too long for an address."""
    place = os.path.dirname(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_SECONDS)
        try:
            fd = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or str(error)
        try:
            line.connect(f"/proc/self/fd/{fd}/{os.path.basename(path)}")
        except TimeoutError:
            return ""  # its queue is full: it has a listener
        except OSError as error:
            return "" if error.errno == errno.EAGAIN else error.strerror or str(error)
        finally:
            os.close(fd)
    return ""
