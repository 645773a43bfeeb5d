# SPDX-License-Identifier: Apache-2.0
"""gpuhook's hook as a file of a hooks.d directory, see oci-hooks(5)."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.read import oci_hooks
from gpuhook.errors import fault
from gpuhook.host import documents
from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.engines.configure.engine_plan import EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles

NAME = "99-gpuhook.json"


def changes(
    files: ConfigFiles, directories: Sequence[str], options: EngineOptions, user: str = ""
) -> list[ConfigChange]:
    """Return the changes that add the hook to the last directory; none if a directory has it.

    `user` is the XDG_RUNTIME_DIR of a user's engine, where the hook keeps its state.
    With another program's GPU hook, a container would get its GPUs twice. `takes_over` removes that
    file; without it, such a file raises GH2048. Raises OSError.
    """
    path = f"{directories[-1]}/{NAME}"
    removed = []
    for one in oci_hooks.read(files, directories):
        if not one.gives_gpus or one.file == path:
            continue
        if one.is_gpuhooks:
            if one.path == options.hook:
                return []
        elif not options.takes_over:
            raise fault("GH2048", where=one.file)
        removed.append(ConfigChange(one.file, files.read(one.file), None))
    before, after = files.read(path), content(options.hook, user)
    return [*removed, *([ConfigChange(path, before, after)] if before != after else [])]


def hook_path(files: ConfigFiles, directories: Sequence[str], options: EngineOptions) -> str:
    """Return the path of the file that has the hook after the changes."""
    for one in oci_hooks.read(files, directories):
        if one.path == options.hook:
            return one.file
    return f"{directories[-1]}/{NAME}"


def content(hook: str, user: str = "") -> bytes:
    """Return the hook file. It applies to every container; the hook checks for a GPU request."""
    entry = hook_entry(hook)
    entry["env"] += [f"XDG_RUNTIME_DIR={user}"] if user else []
    document = {
        "version": "1.0.0",
        "hook": entry,
        "when": {"always": True},
        "stages": ["prestart"],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def hook_entry(program: str) -> dict[str, Any]:
    """Return gpuhook's hook as an entry of config.json."""
    path = ":".join(PROGRAM_DIRS)
    return {"path": program, "args": [posixpath.basename(program)], "env": [f"PATH={path}"]}


def is_ours(path: str, edited: bytes) -> bool:
    """Return whether an edited file still has gpuhook's hook."""
    try:
        program = documents.parse_json(edited)["hook"]["path"]
    except (ValueError, KeyError, TypeError):
        program = None
    return oci_hooks.OciHook(path, program if isinstance(program, str) else "").is_gpuhooks
