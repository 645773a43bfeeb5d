# SPDX-License-Identifier: Apache-2.0
"""How gpuhook grants on this node: by its own specs, or as generate-cdi would describe the node.

A spec of NVIDIA's says what NVIDIA gives; what gpuhook would give is what it would write itself.
"""

from __future__ import annotations

from gpuhook import files
from gpuhook.cdi import registry
from gpuhook.cdi import spec as cdi_spec
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import hookless, jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.settings import Settings

_MAX_SPEC = 64 << 20


def own_spec(settings: Settings, kind: str) -> str:
    """Return the path of a spec of `kind` that generate-cdi has written, "" if there is none.

    Nothing is compiled and kept for that. A file that cannot be read is passed over.
    """
    for directory in reversed(settings.spec_dirs):
        for path in registry.files(directory):
            if _is_ours(path, kind):
                return path
    return ""


def _is_ours(path: str, kind: str) -> bool:
    try:
        spec = cdi_spec.parser(path)(files.read(path, _MAX_SPEC), path)
    except (GpuhookError, OSError):
        return False
    edits = spec.get("containerEdits") if isinstance(spec, dict) else None
    if not isinstance(edits, dict) or spec.get("kind") != kind:
        return False
    hooks, env = edits.get("hooks"), edits.get("env")
    is_hooked = isinstance(hooks, list) and any(jobs.is_ours(hook) for hook in hooks)
    return is_hooked or (isinstance(env, list) and hookless.ENV in env)
