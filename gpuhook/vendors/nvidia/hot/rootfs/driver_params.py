# SPDX-License-Identifier: Apache-2.0
"""The driver's parameters for a container: the driver must not make device nodes there.

With ModifyDeviceFiles: 1 the driver's user space creates /dev/nvidia* nodes for every GPU of the
host, if it has the privileges. A copy with 0 is bound over the file. No runtime accepts a mount
inside /proc from config.json, so a hook does it.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.hook_args import HOOK_ENV
from gpuhook.apply.spec.oci_spec import HOOK_MARK
from gpuhook.host.hot import files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Hook

PATH = "/proc/driver/nvidia/params"
_KEY = b"ModifyDeviceFiles:"
_MAX_SIZE = 1 << 16


def masked(host_root: str) -> bytes | None:
    """Return the parameters with ModifyDeviceFiles: 0, None if the host's need no mask.

    None also if this kernel has no such file, whatever another `host_root` has: then a container's
    /proc has no file to mask.
    """
    if not os.path.exists(PATH):
        return None
    try:
        text = files.read(host_root.rstrip("/") + PATH, _MAX_SIZE)
    except OSError:
        return None
    lines = text.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(_KEY) and line[len(_KEY) :].strip() == b"1":
            lines[number] = _KEY + b" 0"
            return b"\n".join(lines)
    return None


def masked_file(content: bytes) -> str:
    """Return the path of a file with `content` in the state directory; make it if necessary."""
    path = os.path.join(state.directory(), "params")
    try:
        if state.usable(os.lstat(path)) and files.read(path, _MAX_SIZE) == content:
            return path
    except OSError:
        pass
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    files.replace(path, content, mode=0o444)
    return path


def _is_busybox(program: str) -> bool:
    """Return whether a program is busybox, whose mount(8) does not make a bind read-only."""
    try:
        return "busybox" in os.readlink(program)
    except OSError:
        return False


def mount_hook(source: str, rootfs: str) -> Hook | None:
    """Return the createContainer hook that binds `source` over the file, None without mount(8).

    It is mount(8) itself: it takes a tenth of the time that an interpreter needs to start. Its
    environment is explicit, as the image's must not reach it.
    """
    for program in ("/usr/bin/mount", "/bin/mount"):
        if os.access(program, os.X_OK) and not _is_busybox(program):
            return {
                "hookName": "createContainer",
                "path": program,
                "args": ["mount", "--bind", "-o", "ro", source, rootfs + PATH],
                "env": [*HOOK_ENV, HOOK_MARK + "params"],
            }
    return None
