# SPDX-License-Identifier: Apache-2.0
"""The OCI state that a runtime hands to its hooks on standard input, in all its dialects.

WARM. Source: OCI runtime-spec runtime.md, "State"; older runtimes say bundlePath, and the oldest
root, where newer ones say bundle.
"""

from __future__ import annotations

import os

from gpuhook import fastjson, files
from gpuhook.container import oci
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_STATE = 4 << 20


class HookState:
    """A container's id, its bundle and that bundle's config.json, and the pid of its init.

    `pid` is 0 where the state does not tell one that means anything to us.
    """

    __slots__ = ("bundle", "id", "pid", "spec")

    def __init__(self, document: dict[str, Any]) -> None:
        """Raises GH1642 if the state names no bundle, GH1300 or GH1301 for its config.json."""
        bundle = document.get("bundle") or document.get("bundlePath")
        if not isinstance(bundle, str):
            raise fault("GH1642", reason="it names no bundle")
        self.bundle = bundle
        identity = document.get("id")
        self.id = identity if isinstance(identity, str) else ""
        self.pid = _number(document.get("pid"))
        self.spec = _config(bundle)


def read() -> HookState:
    """Return the state on standard input; GH1642 if it is none."""
    chunks = []
    left = _MAX_STATE
    while left > 0:
        chunk = os.read(0, left)
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    try:
        document = fastjson.loads(b"".join(chunks))
    except ValueError as error:
        raise fault("GH1642", reason=error) from error
    if not isinstance(document, dict):
        raise fault("GH1642", reason="it is no JSON object")
    return HookState(document)


def _number(pid: object) -> int:
    """Return a pid, which some runtimes quote; 0 for anything that is none."""
    if isinstance(pid, bool):
        return 0
    if isinstance(pid, int):
        return max(pid, 0)
    return int(pid) if isinstance(pid, str) and pid.isascii() and pid.isdigit() else 0


def _config(bundle: str) -> dict[str, Any]:
    path = os.path.join(bundle, "config.json")
    try:
        raw = files.read(path)
    except FileNotFoundError as error:
        raise fault("GH1300", path=path) from error
    return oci.parsed(path, raw)
