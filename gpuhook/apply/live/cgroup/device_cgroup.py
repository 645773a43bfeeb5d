# SPDX-License-Identifier: Apache-2.0
"""The devices that the cgroup of a running container allows, and changes to them.

One interface for cgroup v1's files and cgroup v2's programs. Changes apply at once, also to running
processes; open descriptors are not affected.
"""

from __future__ import annotations

from gpuhook.apply.live.cgroup.cgroup_v1_devices import DeviceFiles
from gpuhook.apply.live.cgroup.cgroup_v2_devices import DevicePrograms
from gpuhook.apply.live.cgroup.systemd_scope import Scope
from gpuhook.containers.warm.process_handle import is_hosts_root
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.kernel.cgroup import DeviceCgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from gpuhook.apply.live.cgroup.device_program import Program


class Snapshot:
    """The state that restore() restores."""

    __slots__ = ("entries", "marks")

    def __init__(self, marks: list[int], entries: list[str] | None) -> None:
        self.marks = marks
        self.entries = entries


class DeviceRules:
    """The device rules of one container's cgroup.

    `version` is "v1", "v2", or "none" if no device cgroup applies or this process may not change
    it, as without the host's root: then only the nodes' permissions decide, and `why_none` is the
    reason. `path` is the cgroup's directory.
    """

    def __init__(self, place: DeviceCgroup | None, fallback: list[Rule] | None) -> None:
        self.version = "none" if place is None else place.version
        self.path = "" if place is None else place.path
        self.why_none = "" if place is not None else _why_none()
        self.notes: list[str] = []  # changes of a systemd unit, and failures
        self._scope = None if place is None else Scope.find(place.unit)
        # Of cgroup v1 from the highest down: a cgroup allows nothing that its parent denies.
        self._parts: list[DeviceFiles | DevicePrograms] = []
        if place is not None and self.version == "v1":
            self._parts = [DeviceFiles(path) for path in reversed(place.own)]
        elif place is not None:
            self._parts = [DevicePrograms(place, fallback)]

    @classmethod
    def parse(
        cls,
        cgroup_file: bytes,
        fallback_rules: list[dict[str, Any]] | None = None,
        recorded: str | None = None,
    ) -> DeviceRules:
        """Return the rules for the cgroup that the content of a /proc/PID/cgroup names.

        `fallback_rules` are config.json's linux.resources.devices, for programs that the kernel
        does not show; `recorded` is the cgroup that the runtime recorded. Raises OSError if
        mountinfo cannot be read.
        """
        place = DeviceCgroup.parse(cgroup_file, recorded) if is_hosts_root() else None
        fallback = None
        if fallback_rules is not None:
            fallback = [Rule.of_oci(entry) for entry in fallback_rules]
        return cls(place, fallback)

    def verdict(self, kind: str, major: int, minor: int, access: str) -> tuple[bool, str]:
        """Return whether the cgroup allows a request such as "c", 195, 0, "rw", and why.

        Raises OSError, FileNotFoundError if the cgroup is gone.
        """
        return self.verdicts(kind, [(major, minor)], access)[0]

    def verdicts(
        self, kind: str, numbers: list[tuple[int, int]], access: str
    ) -> list[tuple[bool, str]]:
        """Return verdict() for each device number; the rules are read once."""
        if self._parts:
            return self._parts[-1].verdicts(kind, numbers, access)
        return [(True, "no device cgroup applies here, or it is not visible") for _ in numbers]

    def change(
        self,
        allow: Iterable[Rule],
        deny: Iterable[Rule] = (),
        paths: Mapping[Rule, str] | None = None,
    ) -> bool:
        """Apply exactly these rules, whatever the state was; returns whether anything changed.

        Rules that already apply change nothing. Each rule names one device; `paths` has the host's
        node for rules that a systemd scope should have. If something fails, the earlier state is
        restored. Raises OSError; GH1701 for a program that can be neither read nor rebuilt, GH1702
        if a cgroup above still denies access, GH1703 and GH1704.
        """
        allow, deny = list(allow), list(deny)
        return self._changes(lambda: self._change(allow, deny, paths or {}))

    def drop(self, rules: Iterable[Rule], paths: Mapping[Rule, str] | None = None) -> bool:
        """Remove rules that change() added; returns and raises as change() does."""
        rules = list(rules)
        return self._changes(lambda: self._drop(rules, paths or {}))

    def snapshot(self) -> Snapshot:
        """Return the state for restore()."""
        entries = None if self._scope is None else self._scope.allowed()
        return Snapshot(self._marks(), entries)

    def restore(self, snapshot: Snapshot) -> None:
        """Undo exactly the changes of change() and drop() since then; raises OSError."""
        entries = snapshot.entries
        if self._scope is not None and entries is not None and self._scope.allowed() != entries:
            self._scope.put(entries)
        for one, mark in zip(self._parts, snapshot.marks):
            one.restore(mark)

    def close(self) -> None:
        """Close the descriptors that restore() would need."""
        for one in self._parts:
            one.close()

    def programs(self) -> list[Program]:
        """Return the programs that decide, the container's own first; [] unless it is v2."""
        parts = [one for one in self._parts if isinstance(one, DevicePrograms)]
        return [program for one in parts for program in one.attached()]

    def _marks(self) -> list[int]:
        return [one.snapshot() for one in self._parts]

    def _changes(self, work: Callable[[], None]) -> bool:
        """Return whether `work` changed anything; if it fails, the earlier state is restored."""
        start = self.snapshot()
        try:
            work()
        except BaseException:
            self.restore(start)
            raise
        return self._marks() != start.marks

    def _change(self, allow: list[Rule], deny: list[Rule], paths: Mapping[Rule, str]) -> None:
        self._set_scope(allow, deny, paths)
        for one in self._parts:
            one.change(allow, deny)

    def _drop(self, rules: list[Rule], paths: Mapping[Rule, str]) -> None:
        self._set_scope([], [rule for rule in rules if rule.allow], paths)
        for one in self._parts:
            one.drop(rules)

    def _set_scope(self, allow: list[Rule], deny: list[Rule], paths: Mapping[Rule, str]) -> None:
        """Change the systemd scope; before the programs, since systemd then loads its own again."""
        if self._scope is None or not paths:
            return
        entries = [f"{paths[rule]} {rule.access}" for rule in allow if rule in paths]
        gone = [f"{paths[rule]} {rule.access}" for rule in deny if rule in paths]
        self.notes += self._scope.add(entries) if entries else []
        self.notes += self._scope.remove(gone) if gone else []


def _why_none() -> str:
    """Return why there are no rules that this process could change."""
    if is_hosts_root():
        return "the container does not have its own cgroup"
    return "only root on the host can change them (rootless container)"
