# SPDX-License-Identifier: Apache-2.0
"""The application profile that tells EGL which of the host's GPUs a container has.

WARM. EGL's device enumeration asks the driver, which knows every GPU of the host; the profile's
bit mask of minors leaves the others out.
"""

from __future__ import annotations

PATH = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
_MOST = 64  # bits of the mask


def content(nodes: list[str]) -> bytes:
    """Return the profile for a container that has the device nodes `nodes`."""
    mask = 0
    for path in nodes:
        minor = path[len("/dev/nvidia") :] if path.startswith("/dev/nvidia") else ""
        if minor.isdigit() and int(minor) < _MOST:
            mask |= 1 << int(minor)
    return (
        b'{"profiles": [{"name": "_container_",'
        b' "settings": ["EGLVisibleDGPUDevices", 0x%x]}],\n'
        b' "rules": [{"pattern": [], "profile": "_container_"}]}\n' % mask
    )
