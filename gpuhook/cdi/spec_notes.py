# SPDX-License-Identifier: Apache-2.0
"""What gpuhook notes in a spec of device nodes: the change token, and the options that made it.

The notes are annotations of the spec. A spec for engines that read only CDI 0.5 can have none: its
options are in a variable, which containers see, and it has no token.
"""

from __future__ import annotations

import shlex

from gpuhook.cdi.hot.spec_versions import VERSIONS, lowest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.cdi.hot.container_edits import Spec

TOKEN = "io.gpuhook.token"  # noqa: S105 # not a secret
OPTIONS = "io.gpuhook.options"
_VARIABLE = "GPUHOOK_SPEC_OPTIONS="
_WITH_ANNOTATIONS = "0.6.0"


def noted(spec: Spec, token: str, words: Sequence[str], newest: str) -> Spec:
    """Return `spec` with its token and the options `words`, for a reader of CDI `newest`."""
    options = shlex.join(words)
    if VERSIONS.index(newest) < VERSIONS.index(_WITH_ANNOTATIONS):
        edits = spec.get("containerEdits") or {}
        env = [*(edits.get("env") or ()), _VARIABLE + options]
        return {**spec, "containerEdits": {**edits, "env": env}}
    found: Spec = {
        "cdiVersion": spec["cdiVersion"],
        "kind": spec["kind"],
        "annotations": {TOKEN: token, OPTIONS: options},
        "containerEdits": spec["containerEdits"],
        "devices": spec["devices"],
    }
    found["cdiVersion"] = max(spec["cdiVersion"], lowest(dict(found)), key=VERSIONS.index)
    return found


def options(spec: Spec) -> list[str] | None:
    """Return the options in a spec, None for a spec without: gpuhook did not write it."""
    text = (spec.get("annotations") or {}).get(OPTIONS)
    for entry in (spec.get("containerEdits") or {}).get("env") or ():
        if entry.startswith(_VARIABLE):
            text = entry[len(_VARIABLE) :]
    try:
        return None if text is None else shlex.split(text)
    except ValueError:
        return None
