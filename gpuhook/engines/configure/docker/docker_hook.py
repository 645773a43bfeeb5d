# SPDX-License-Identifier: Apache-2.0
"""The name by which dockerd calls the hook of `docker run --gpus`, found in its PATH.

Source: moby/daemon/nvidia_linux.go.
"""

from __future__ import annotations

from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions

NAME = "nvidia-container-runtime-hook"
# systemd's PATH for services (systemd.exec(5), DEFAULT_PATH), in which dockerd looks.
_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_OURS = "/usr/local/bin"
_MARK = b"gpuhook"


def changes(node: EngineNode, wanted: EngineOptions) -> list[ConfigChange]:
    """Return the front that is to be made, none where that name leads to gpuhook already.

    One that is another's, such as a package's, is not replaced: ours comes before it in the PATH.
    Raises a fault where that is not asked for, and OSError.
    """
    found = [where for where in _DIRECTORIES if NAME in node.files.names(where)]
    content = node.files.read(f"{found[0]}/{NAME}") if found else None
    text = front(wanted.hook)
    if found and (content == text or (content and _MARK in content)):
        return []
    if found and not wanted.takes_over:
        raise fault("GH2048", where=f"{found[0]}/{NAME}")
    directory = _DIRECTORIES[0] if found and found[0] == _DIRECTORIES[0] else _OURS
    path = f"{directory}/{NAME}"
    return [ConfigChange(path, node.files.read(path), text, 0o755)]


def front(hook: str) -> bytes:
    """Return the program that stands under the name: it becomes gpuhook's hook."""
    return f'#!/bin/sh\n# gpuhook: for docker run --gpus\nexec "{hook}" "$@"\n'.encode()


def is_ours(content: bytes) -> bool:
    """Return whether a front that was edited since still is gpuhook's."""
    return _MARK in content
