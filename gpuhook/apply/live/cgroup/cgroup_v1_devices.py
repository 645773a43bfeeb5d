# SPDX-License-Identifier: Apache-2.0
"""The device files of a container's cgroup v1: reading and changing them.

devices.list has the exceptions of a cgroup that denies everything else. A cgroup that allows
everything does not show its denials (devices.rst): there a denial is written and not verified.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.kernel.bpf.device_filter import BITS, Rule
from gpuhook.kernel.cgroup import devices_list, devices_write


class DeviceFiles:
    """The files of one cgroup, and the rules written to them so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._done: list[Rule] = []
        self._lines: list[str] = []
        self._rules: list[Rule] = []

    def listed(self) -> list[Rule]:
        """Return the rules of devices.list, as it is now; raises OSError."""
        lines = devices_list(self._path)
        if lines != self._lines:  # callers ask about one device after another
            self._lines, self._rules = lines, [Rule.of_line(line) for line in lines]
        return self._rules

    def verdict(self, kind: str, major: int, minor: int, access: str) -> tuple[bool, str]:
        """Return whether one of the listed rules allows the whole request, and which."""
        return self.verdicts(kind, [(major, minor)], access)[0]

    def verdicts(
        self, kind: str, numbers: list[tuple[int, int]], access: str
    ) -> list[tuple[bool, str]]:
        """Return verdict() for each device number; the list is read once."""
        rules = [rule for rule in self.listed() if set(access) <= set(rule.access)]
        return [self._verdict(rules, kind, *number) for number in numbers]

    def _verdict(self, rules: list[Rule], kind: str, major: int, minor: int) -> tuple[bool, str]:
        for rule in rules:
            if rule.names(kind, major, minor):
                hidden = ", which does not show denials" if rule.is_everything else ""
                return True, f"allowed by {rule.line} in {self._path}/devices.list{hidden}"
        return False, f"no rule in {self._path}/devices.list allows it"

    def change(self, allow: list[Rule], deny: list[Rule]) -> None:
        """Apply the rules; if that fails, the earlier state is restored."""
        start = self.snapshot()
        try:
            for rule in allow:
                self._allow(rule)
            for rule in deny:
                self._deny(rule)
        except BaseException:
            self.restore(start)
            raise

    def drop(self, rules: list[Rule]) -> None:
        """Remove rules that change() added, by writing the opposite."""
        contrary = [Rule(not rule.allow, *rule.device, rule.access) for rule in rules]
        self.change([r for r in contrary if r.allow], [r for r in contrary if not r.allow])

    def snapshot(self) -> int:
        """Return a mark for restore()."""
        return len(self._done)

    def restore(self, mark: int) -> None:
        """Undo the writes since the mark; raises OSError, but not if the cgroup is gone."""
        while len(self._done) > mark:
            rule = self._done.pop()
            try:
                devices_write(self._path, [rule.line], allow=not rule.allow)
            except FileNotFoundError:
                continue

    def close(self) -> None:
        """Drop the record of writes that restore() would undo."""
        self._done.clear()

    def _allow(self, rule: Rule) -> None:
        if self._allows_all():
            # Denials are not visible: one of gpuhook's may have to be removed.
            devices_write(self._path, [rule.line], allow=True)
        elif not self.verdict(*rule.device, rule.access)[0]:
            self._write(rule, self._access(rule))

    def _deny(self, rule: Rule) -> None:
        if self._allows_all():
            self._write(rule, "")
            return
        held = set(self._access(rule)).intersection(rule.access)
        if held:
            self._write(rule, "".join(set(rule.access) - held))
        for letter in rule.access.replace("m", ""):
            allowed, reason = self.verdict(*rule.device, letter)
            if allowed:
                raise fault("GH1704", rule=rule.line, reason=reason)

    def _write(self, rule: Rule, already: str) -> None:
        """Write a rule, and record the part of it that is new."""
        devices_write(self._path, [rule.line], allow=rule.allow)
        news = "".join(letter for letter in rule.access if letter not in already)
        self._done.append(Rule(rule.allow, *rule.device, news))

    def _allows_all(self) -> bool:
        return any(rule.is_everything for rule in self.listed())

    def _access(self, rule: Rule) -> str:
        """Return the access that a rule for exactly this device allows now."""
        exact = [found for found in self.listed() if found.type == rule.type]
        numbers = (rule.major, rule.minor)
        held = {c for f in exact if (f.major, f.minor) == numbers for c in f.access}
        return "".join(letter for letter in BITS if letter in held)
