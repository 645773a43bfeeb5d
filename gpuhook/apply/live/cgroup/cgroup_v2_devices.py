# SPDX-License-Identifier: Apache-2.0
"""The device programs of a container's cgroup v2: their decisions, and gpuhook's block in each.

All programs that apply to a cgroup must allow a request, those of the cgroups above it included.
Each of the container's own programs is changed: systemd adds one at a daemon-reload.
"""

from __future__ import annotations

import errno
import os

from gpuhook.apply.live.cgroup.device_program import Program, with_rules, without_rules
from gpuhook.errors import fault
from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_filter import ALLOW_ALL, Rule, evaluate, prepend, program
from gpuhook.kernel.bpf.instructions import UnknownCodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.cgroup.device_program import Change
    from gpuhook.kernel.cgroup import DeviceCgroup

NAME = "gpuhook"
_ABOVE = "a cgroup above"
_TRIES = 8
# Rules that engines add to config.json's for every container: making any node, and the default
# devices of the OCI runtime specification (config-linux.md) with the terminals.
_DEFAULTS = [
    *("c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"),
    *("c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm", "c 136:* rwm"),
]


class _Replaced:
    """A program that replaced another one, with descriptors of both for the way back.

    A descriptor is -1 if there was no program before, or there is no program now.
    """

    def __init__(self, cgroup: str, flags: int, old_fd: int, new_fd: int) -> None:
        self.cgroup = cgroup
        self.flags = flags
        self.old_fd = old_fd
        self.new_fd = new_fd

    def undo(self) -> None:
        """Restore the old program, unless the new one or the cgroup is gone; raises OSError."""
        try:
            with _Directory(self.cgroup) as fd:
                if self.old_fd < 0:
                    bpf_syscall.prog_detach(fd, self.new_fd)
                elif self.new_fd < 0:
                    bpf_syscall.prog_attach(fd, self.old_fd, self.flags)
                elif bpf_syscall.prog_info(self.new_fd).id in bpf_syscall.prog_query(fd)[0]:
                    _replace(fd, self.old_fd, self.new_fd, self.flags)
        except FileNotFoundError:
            pass
        self.close()

    def close(self) -> None:
        """Close both programs."""
        for fd in (self.old_fd, self.new_fd):
            if fd >= 0:
                os.close(fd)


class _Directory:
    """A context manager with a cgroup's descriptor; raises OSError."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *raised: object) -> None:
        os.close(self._fd)


class DevicePrograms:
    """The programs that decide for one cgroup, and the changes to them so far."""

    def __init__(self, place: DeviceCgroup, fallback: list[Rule] | None) -> None:
        self._upwards = place.upwards()
        self._own = place.own
        self._fallback = None if fallback is None else fallback + default_rules()
        self._done: list[_Replaced] = []
        # Programs that this process loaded: the kernel may not show them.
        self._loaded: dict[int, bytes] = {}
        # A program never changes, and a new one gets a new id.
        self._known: dict[tuple[int, str, int], Program] = {}

    def attached(self) -> list[Program]:
        """Return every program that applies, the container's own first; raises OSError."""
        with _Directory(self._upwards[0]) as fd:
            effective = set(bpf_syscall.prog_query(fd, effective=True)[0])
        found: list[Program] = []
        for cgroup in self._upwards:
            for one in self._programs_of(cgroup):
                if one.id in effective:
                    found.append(one)
                    effective.discard(one.id)
        hidden = (self._program(identity, _ABOVE, 0, own=False) for identity in effective)
        return found + [one for one in hidden if one is not None]

    def verdicts(
        self, kind: str, numbers: list[tuple[int, int]], access: str
    ) -> list[tuple[bool, str]]:
        """Return for each device number whether it is allowed, else which program denies it."""
        attached = self.attached()
        return [self._verdict(attached, kind, *number, access) for number in numbers]

    def _verdict(
        self, attached: list[Program], kind: str, major: int, minor: int, access: str
    ) -> tuple[bool, str]:
        for one in attached:
            try:
                if not one.allows(kind, access, major, minor):
                    return False, f"{one} denies it"
            except UnknownCodeError as error:
                if self._fallback is None or not one.own:
                    return False, f"{one} cannot be evaluated: {error}"
                if not evaluate(self._fallback, kind, access, major, minor, default=False):
                    return False, f"{one} denies it by the rules of config.json: {error}"
        if not attached:
            return True, "no program controls devices here"
        return True, f"allowed by {', '.join(map(str, attached))}"

    def change(self, allow: list[Rule], deny: list[Rule]) -> None:
        """Apply the rules in each of the container's own programs.

        For denials, a program is attached to a container without one. If something fails, the
        earlier state is restored.
        """
        self._change(with_rules(allow, deny), denies=bool(deny))
        attached = self.attached() if allow else []
        for rule in allow:
            allowed, reason = self._verdict(attached, *rule.device, rule.access)
            if not allowed:
                raise fault("GH1702", rule=rule.line, reason=reason)

    def drop(self, rules: list[Rule]) -> None:
        """Remove rules that change() added."""
        self._change(without_rules(rules), denies=False)

    def _change(self, wanted: Change, *, denies: bool) -> None:
        start = self.snapshot()
        try:
            for cgroup in self._own:
                self._treat(cgroup, wanted)
            is_same = self.snapshot() == start
            if denies and is_same and not any(one.own for one in self.attached()):
                self._attach(self._own[-1], wanted)
        except BaseException:
            self.restore(start)
            raise

    def snapshot(self) -> int:
        """Return a mark for restore()."""
        return len(self._done)

    def restore(self, mark: int) -> None:
        """Restore exactly the programs that were replaced since the mark; raises OSError."""
        while len(self._done) > mark:
            self._done.pop().undo()

    def close(self) -> None:
        """Close the programs that restore() would need."""
        while self._done:
            self._done.pop().close()

    def _programs_of(self, cgroup: str) -> list[Program]:
        with _Directory(cgroup) as fd:
            ids, flags = bpf_syscall.prog_query(fd)
        own = cgroup in self._own
        found = (self._program(identity, cgroup, flags, own=own) for identity in ids)
        return [one for one in found if one is not None]

    def _program(self, identity: int, cgroup: str, flags: int, *, own: bool) -> Program | None:
        """Return an attached program, None if it is gone by now."""
        key = (identity, cgroup, flags)
        if key in self._known:
            return self._known[key]
        try:
            fd = bpf_syscall.prog_get_fd_by_id(identity)
        except FileNotFoundError:
            return None
        try:
            found = self._known[key] = Program(cgroup, self._info(fd), flags, own=own)
        finally:
            os.close(fd)
        return found

    def _info(self, fd: int) -> bpf_syscall.Info:
        info = bpf_syscall.prog_info(fd)
        if info.instructions is None:
            info.instructions = self._loaded.get(info.id)
        return info

    def _treat(self, cgroup: str, wanted: Change) -> None:
        """Change the programs of one cgroup; those that are replaced meanwhile are read again."""
        with _Directory(cgroup) as fd:
            for _ in range(_TRIES):
                ids, flags = bpf_syscall.prog_query(fd)
                try:
                    for identity in ids:
                        self._one(fd, cgroup, identity, flags, wanted)
                except FileNotFoundError:
                    continue
                if set(bpf_syscall.prog_query(fd)[0]) - set(ids) <= self._new_ids():
                    return
        raise fault("GH1703", cgroup=cgroup)

    def _new_ids(self) -> set[int]:
        return {bpf_syscall.prog_info(one.new_fd).id for one in self._done if one.new_fd >= 0}

    def _one(self, fd: int, cgroup: str, identity: int, flags: int, wanted: Change) -> None:
        """Replace one program whose rules differ."""
        old_fd = bpf_syscall.prog_get_fd_by_id(identity)
        new_fd = -1
        try:
            old = Program(cgroup, self._info(old_fd), flags, own=True)
            rest = old.rest if old.code is not None else self._rebuilt(old)
            rules = wanted(old.ours, rest)
            if rules == old.ours and old.code is not None:
                return
            if not rules and rest == ALLOW_ALL and old.name == NAME:
                bpf_syscall.prog_detach(fd, old_fd)
                self._done.append(_Replaced(cgroup, flags, old_fd, -1))
                old_fd = -1
                return
            new_fd = self._load(prepend(rules, rest), _name(old, rules))
            _replace(fd, new_fd, old_fd, flags)
            self._done.append(_Replaced(cgroup, flags, old_fd, new_fd))
            old_fd = new_fd = -1
        finally:
            for one in (old_fd, new_fd):
                if one >= 0:
                    os.close(one)

    def _load(self, code: bytes, name: str) -> int:
        fd = bpf_syscall.prog_load(code, name)
        self._loaded[bpf_syscall.prog_info(fd).id] = code
        return fd

    def _rebuilt(self, old: Program) -> bytes:
        """Return a program of config.json's rules; GH1701 if a block may be unreadable."""
        if self._fallback is None or old.name == NAME:
            raise fault("GH1701", program=old)
        return program(self._fallback, default=False)

    def _attach(self, cgroup: str, wanted: Change) -> None:
        new_fd = self._load(prepend(wanted([], ALLOW_ALL), ALLOW_ALL), NAME)
        try:
            with _Directory(cgroup) as fd:
                bpf_syscall.prog_attach(fd, new_fd, bpf_syscall.BPF_F_ALLOW_MULTI)
        except OSError:
            os.close(new_fd)
            raise
        self._done.append(_Replaced(cgroup, 0, -1, new_fd))


def default_rules() -> list[Rule]:
    """Return the rules that engines give every container."""
    return [Rule.of_line(line) for line in _DEFAULTS]


def _name(old: Program, rules: list[Rule]) -> str:
    """Return the name of a program that replaces `old`: its own, or ours.

    A rebuilt program keeps our name for good: it shows that the program may have a block.
    """
    if old.code is None:
        return NAME
    if old.name not in ("", NAME):
        return old.name
    return NAME if rules else ""


def _replace(cgroup_fd: int, new_fd: int, old_fd: int, flags: int) -> None:
    """Replace a program; raises OSError, ENOENT if the old one is gone.

    Without BPF_F_ALLOW_MULTI a cgroup has one program, and attaching replaces it.
    """
    if not flags & bpf_syscall.BPF_F_ALLOW_MULTI:
        bpf_syscall.prog_attach(cgroup_fd, new_fd, flags)
        return
    try:
        bpf_syscall.prog_attach(cgroup_fd, new_fd, flags | bpf_syscall.BPF_F_REPLACE, old_fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Linux before 5.6 cannot replace: for a moment both apply, which allows nothing more.
        bpf_syscall.prog_attach(cgroup_fd, new_fd, flags)
        bpf_syscall.prog_detach(cgroup_fd, old_fd)
