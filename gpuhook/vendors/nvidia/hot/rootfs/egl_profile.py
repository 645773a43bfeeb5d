# SPDX-License-Identifier: Apache-2.0
"""The application profile that limits EGL to the container's GPUs.

Only for containers with EGL. EGL's device enumeration asks the driver, which knows every GPU of the
host; the profile's bit mask of minors leaves the others out.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PATH = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
_MOST = 64  # bits of the mask
_BEGIN = b'{"profiles": [{"name": "_container_",'


def content(nodes: Iterable[str]) -> bytes:
    """Return the profile for a container with the device nodes `nodes`."""
    mask = 0
    for path in nodes:
        minor = path[len("/dev/nvidia") :] if path.startswith("/dev/nvidia") else ""
        if minor.isdigit() and int(minor) < _MOST:
            mask |= 1 << int(minor)
    return _BEGIN + (
        b' "settings": ["EGLVisibleDGPUDevices", 0x%x]}],\n'
        b' "rules": [{"pattern": [], "profile": "_container_"}]}\n' % mask
    )


def is_ours(text: bytes | None) -> bool:
    """Return whether `text` is a profile of content(), for any GPUs."""
    return text is not None and text.startswith(_BEGIN)
