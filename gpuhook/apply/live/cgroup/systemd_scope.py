# SPDX-License-Identifier: Apache-2.0
"""DeviceAllow of a container's systemd scope, which a `systemctl daemon-reload` applies again.

If systemd manages a container's scope, each daemon-reload restores the device rules of the unit, so
the unit must list a new device, too. Source: systemd.resource-control(5).
"""

from __future__ import annotations

import os

from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_RUNNING = "/run/systemd/system"
_PROPERTY = "DeviceAllow"
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_PAGER": "", "PATH": ":".join(state.PROGRAM_DIRS)}


class Scope:
    """The unit of a container, and the systemctl that changes it; failures become notes."""

    def __init__(self, unit: str, systemctl: str) -> None:
        self.unit = unit
        self._systemctl = systemctl

    @classmethod
    def find(cls, cgroup: str) -> Scope | None:
        """Return the scope of a container's highest cgroup, None if the cgroup is not a scope.

        A scope further up belongs to the container around it or a login session.
        """
        name = cgroup.rpartition("/")[2]
        if not name.endswith(".scope") or name == "init.scope" or not os.path.isdir(_RUNNING):
            return None
        for directory in state.PROGRAM_DIRS:
            program = os.path.join(directory, "systemctl")
            if os.access(program, os.X_OK):
                scope = cls(name, program)
                return scope if scope._is_at(cgroup) else None
        return None

    def _is_at(self, cgroup: str) -> bool:
        """Return whether the unit of this name has this cgroup, as far as systemctl shows."""
        status, output = self._called("show", "--property", "ControlGroup", "--", self.unit)
        return status != 0 or output.decode("utf-8", "replace").strip() == f"ControlGroup={cgroup}"

    def allowed(self) -> list[str] | None:
        """Return the unit's entries, such as "/dev/null rwm"; None if systemctl fails."""
        status, output = self._called("show", "--property", _PROPERTY, "--", self.unit)
        if status != 0:
            return None
        lines = output.decode("utf-8", "surrogateescape").splitlines()
        values = [line.partition("=")[2] for line in lines if line.startswith(_PROPERTY + "=")]
        return [value for value in values if value]

    def _is_open(self) -> bool:
        """Return whether systemd restricts no device of a unit without entries."""
        output = self._called("show", "--property", "DevicePolicy", "--", self.unit)[1]
        return output.strip() == b"DevicePolicy=auto"

    def add(self, entries: Iterable[str]) -> list[str]:
        """Add entries that the unit lacks; returns what was done or failed.

        systemd does not restrict a unit without entries: crun 1.8 sets none. A first entry
        would deny the other devices of the container.
        """
        held = self.allowed()
        if held is None:
            return [self._warning()]
        if not held and self._is_open():
            return []
        return self._set([entry for entry in entries if entry not in held], "added")

    def remove(self, entries: Iterable[str]) -> list[str]:
        """Remove entries of the unit; returns what was done or failed."""
        held = self.allowed()
        if held is None:
            return [self._warning()]
        gone = [entry for entry in entries if entry in held]
        return self.put([entry for entry in held if entry not in gone]) if gone else []

    def put(self, entries: list[str]) -> list[str]:
        """Set the unit's entries; returns what was done or failed."""
        # An empty assignment removes all entries, the others add: one call, so one change.
        return self._set(["", *entries], "set")

    def _set(self, entries: list[str], verb: str) -> list[str]:
        if not entries:
            return []
        words = [f"{_PROPERTY}={entry}" for entry in entries]
        if self._called("set-property", "--runtime", "--", self.unit, *words)[0] != 0:
            return [self._warning()]
        named = ", ".join(entry for entry in entries if entry) or "nothing"
        return [f"{self.unit}: {verb} {_PROPERTY} {named}"]

    def _warning(self) -> str:
        return (
            f"warning: {self._systemctl} did not change {_PROPERTY} of {self.unit}:"
            " the next daemon-reload removes the device again"
        )

    def _called(self, *words: str) -> tuple[int, bytes]:
        """Run systemctl, and return its exit status and its output."""
        reader, writer = os.pipe()
        quiet = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        try:
            pid = os.posix_spawn(
                self._systemctl,
                [self._systemctl, "--no-pager", *words],
                _ENVIRONMENT,
                file_actions=[quiet, (os.POSIX_SPAWN_DUP2, writer, 1)],
            )
        except OSError:
            os.close(reader)
            return 127, b""
        finally:
            os.close(writer)
        with open(reader, "rb") as file:
            output = file.read()
        return os.waitpid(pid, 0)[1], output
