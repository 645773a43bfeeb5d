# SPDX-License-Identifier: Apache-2.0
"""Programs of gpuhook's under the names of NVIDIA's toolkit (packaging/compat)."""

from __future__ import annotations

import posixpath

from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.read.config_files import ConfigFiles

# Where engines look for bare names: their PATH has the same.
DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_HEAD = 4096  # bytes of a script that say whose it is
_OF_NVIDIA = "nvidia-"


def is_front(files: ConfigFiles, path: str) -> bool:
    """Return whether a program by a name of NVIDIA's is a script of gpuhook's; raises OSError.

    A bare name is looked up where engines do.
    """
    if not posixpath.basename(path).startswith(_OF_NVIDIA):
        return False
    paths = [path] if "/" in path else [f"{place}/{path}" for place in DIRECTORIES]
    for one in paths:
        content = files.read(one)
        if content is not None:
            return is_text_of_ours(content)
    return False


def is_text_of_ours(content: bytes) -> bool:
    """Return whether a program is a script of gpuhook's."""
    return content.startswith(b"#!") and b"gpuhook" in content[:_HEAD]


def is_our_runtime(files: ConfigFiles, path: str) -> bool:
    """Return whether a runtime's program is gpuhook's, by its own name or by one of NVIDIA's."""
    return posixpath.basename(path) == GPUHOOK_RUNTIME or is_front(files, path)
