# SPDX-License-Identifier: Apache-2.0
"""Our hook as a file of a hooks.d directory, after oci-hooks(5)."""

from __future__ import annotations

import json
import posixpath

from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.read import oci_hooks
from gpuhook.errors import fault
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.engines.configure.engine_options import EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles

NAME = "99-gpuhook.json"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def changes(
    files: ConfigFiles, directories: Sequence[str], wanted: EngineOptions
) -> list[ConfigChange]:
    """Return what brings our hook into the last of the directories, nothing where it is there.

    Another's hook that gives GPUs would give them twice: with `takes_over` its file goes, else it
    is a fault. Raises OSError.
    """
    path = f"{directories[-1]}/{NAME}"
    gone = []
    for one in oci_hooks.read(files, directories):
        if not one.gives_gpus or one.file == path:
            continue
        if one.is_gpuhooks:
            if one.path == wanted.hook:
                return []
        elif not wanted.takes_over:
            raise fault("GH2048", where=one.file)
        gone.append(ConfigChange(one.file, files.read(one.file), None))
    before, after = files.read(path), content(wanted.hook)
    return [*gone, *([ConfigChange(path, before, after)] if before != after else [])]


def file(files: ConfigFiles, directories: Sequence[str], wanted: EngineOptions) -> str:
    """Return the path of the file that has our hook when the changes are made."""
    for one in oci_hooks.read(files, directories):
        if one.path == wanted.hook:
            return one.file
    return f"{directories[-1]}/{NAME}"


def content(hook: str) -> bytes:
    """Return the hook's file: every container has it, and it looks whether one asks for a GPU."""
    document = {
        "version": "1.0.0",
        "hook": {"path": hook, "args": [posixpath.basename(hook)], "env": [_PATH]},
        "when": {"always": True},
        "stages": ["prestart"],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def is_ours(path: str, edited: bytes) -> bool:
    """Return whether a file that was edited since still has gpuhook's hook."""
    try:
        found = documents.parse_json(edited)
        program = found["hook"]["path"]
    except (ValueError, KeyError, TypeError):
        program = None
    return oci_hooks.OciHook(path, program if isinstance(program, str) else "").is_gpuhooks
