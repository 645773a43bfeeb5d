# SPDX-License-Identifier: Apache-2.0
"""The OCI state that a runtime passes to its hooks on standard input, in all its dialects.

Source: OCI runtime-spec runtime.md, "State"; older runtimes have bundlePath in place of bundle, and
the oldest have root.
"""

from __future__ import annotations

import errno
import os

from gpuhook.apply.spec import config_json
from gpuhook.containers.hot import ledger
from gpuhook.errors import fault
from gpuhook.host.hot import fastjson, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.host.hot.engine_log import EngineLog

_MAX_STATE = 4 << 20
_BEGUN = ("running", "paused")  # crun says so in poststart; runc says "created" there as well


class HookState:
    """A container's id and status, its bundle and that bundle's config.json, its init's pid.

    `id` and `status` are empty if the state has none. `pid` is the state's value, of any type: use
    `init_pid` for the process.
    """

    __slots__ = ("_spec", "bundle", "id", "pid", "status")

    def __init__(self, document: dict[str, Any]) -> None:
        """Raises GH1642 if the state names no bundle."""
        bundle = document.get("bundle") or document.get("bundlePath")
        if not isinstance(bundle, str) or "\0" in bundle:
            raise fault("GH1642", reason="it names no bundle")
        self.bundle = bundle
        self.id = _text(document.get("id"))
        self.pid = document.get("pid")
        self.status = _text(document.get("status"))
        self._spec: dict[str, Any] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Return the bundle's config.json; GH1642 without one, GH1301 for a bad one.

        GH1649 if the root of the container's user namespace may not read it.

        It is read on first use: for createRuntime hooks of a container with a user namespace, crun
        1.8 may report the bundle "/".
        """
        if self._spec is None:
            self._spec = _config(self.bundle)
        return self._spec

    def require_id(self) -> None:
        """Raise GH1642 without an id that the ledger can use."""
        if not self.id:
            raise fault("GH1642", reason="it names no id")
        if not ledger.is_id(self.id):
            raise fault("GH1642", reason=f"its id is {self.id!r}, which no runtime accepts")

    def init_pid(self) -> int:
        """Return the pid of the container's init in the host's pid namespace.

        GH1643 in a stage without that pid: in createContainer and startContainer it is of the
        container's own pid namespace, or 0; in poststop the process is gone. GH1642 for another
        value.
        """
        if self.status == "stopped":
            raise fault("GH1643", reason="the state shows that the container is stopped")
        if self.pid is None:
            raise fault("GH1642", reason="it names no pid")
        if isinstance(self.pid, bool) or not isinstance(self.pid, int) or self.pid < 0:
            pid = fastjson.dumps(self.pid).decode("utf-8", "replace")
            raise fault("GH1642", reason=f"its pid {pid} is not a process number")
        if self.pid <= 1:
            reason = (
                f"the state's pid is {self.pid}, which is not the container's process on the host"
            )
            raise fault("GH1643", reason=reason)
        return self.pid

    def require_not_begun(self) -> None:
        """Raise GH1643 if the container's program already runs."""
        if self.status in _BEGUN:
            raise fault("GH1643", reason=f"the state shows that the container is {self.status}")


def read() -> HookState:
    """Return the state on standard input; GH1642 for other content."""
    raw = _input()
    if not raw.strip():
        raise fault("GH1642", reason="it is empty")
    try:
        document = fastjson.loads(raw)
    except ValueError as error:
        raise fault("GH1642", reason=error) from error
    if not isinstance(document, dict):
        raise fault("GH1642", reason="it is not a JSON object")
    return HookState(document)


def keep_warnings(state: HookState, log: EngineLog, made: dict[str, Any] | None = None) -> None:
    """Add a hook's warnings to the ledger's entry; a container without an entry gets `made`."""
    if not log.warnings or not ledger.is_id(state.id):
        return
    from gpuhook.containers.warm import ledger_changes  # few containers have a warning

    try:
        ledger_changes.add_warnings(state.id, state.bundle, log.warnings, made)
    except OSError as error:
        log.warning(ledger.not_recorded(state.id, error))


def _input() -> bytes:
    chunks = []
    left = _MAX_STATE
    while left > 0:
        try:
            chunk = os.read(0, left)
        except OSError as error:
            what = "it is not open for reading" if error.errno == errno.EBADF else error.strerror
            raise fault("GH1642", reason=what) from error
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _config(bundle: str) -> dict[str, Any]:
    path = os.path.join(bundle, "config.json")
    try:
        raw = files.read(path)
    except FileNotFoundError as error:
        raise fault("GH1642", reason=f"its bundle has no {path}") from error
    except PermissionError as error:
        raise fault("GH1649", path=path) from error
    return config_json.parsed(path, raw)
