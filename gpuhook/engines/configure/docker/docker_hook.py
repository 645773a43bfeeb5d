# SPDX-License-Identifier: Apache-2.0
"""The program that dockerd runs for `docker run --gpus`: a name that it searches in its PATH.

Source: moby/daemon/nvidia_linux.go.
"""

from __future__ import annotations

from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions

NAME = "nvidia-container-runtime-hook"
# systemd's PATH for services (systemd.exec(5), DEFAULT_PATH), which dockerd searches.
_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_OURS = "/usr/local/bin"
_MARK = b"gpuhook"


def changes(node: EngineNode, options: EngineOptions) -> list[ConfigChange]:
    """Return the change that adds the front; none if the name runs gpuhook already.

    Another program of that name, such as a package's, is not replaced: the front is before it in
    the PATH. Raises GH2048 without `takes_over`, and OSError.
    """
    found = [where for where in _DIRECTORIES if NAME in node.files.names(where)]
    content = node.files.read(f"{found[0]}/{NAME}") if found else None
    text = front(options.hook)
    if found and (content == text or (content and _MARK in content)):
        return []
    if found and not options.takes_over:
        raise fault("GH2048", where=f"{found[0]}/{NAME}")
    directory = _DIRECTORIES[0] if found and found[0] == _DIRECTORIES[0] else _OURS
    path = f"{directory}/{NAME}"
    return [ConfigChange(path, node.files.read(path), text, 0o755)]


def front(hook: str) -> bytes:
    """Return the front, a script that executes gpuhook's hook."""
    return f'#!/bin/sh\n# gpuhook: for docker run --gpus\nexec "{hook}" "$@"\n'.encode()


def is_ours(content: bytes) -> bool:
    """Return whether an edited front is still gpuhook's."""
    return _MARK in content
