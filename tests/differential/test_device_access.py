# SPDX-License-Identifier: Apache-2.0
"""The kernel opens and makes the devices that gpuhook's verdict allows, and no others."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.errors import GpuhookError
from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_filter import Rule, evaluate, program
from gpuhook.kernel.cgroup import DeviceCgroup
from tests.contract.bundles import CGROUP
from tests.contract.runtimes import CGROUPS
from tests.depth import depth
from tests.figures import Figures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups and device nodes need root")
ROUNDS = depth(20, 100, 1_000)
V1 = CGROUPS / "devices"
V2 = CGROUPS / "unified" if (CGROUPS / "unified").is_mount() else CGROUPS
# Numbers without a driver: an allowed open(2) fails with ENXIO, a denied one with EPERM.
MAJORS, MINORS = (195, 4095), (0, 7, (1 << 20) - 1)
DEVICES = list(product("bc", MAJORS, MINORS))
FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
ACCESS = ("r", "w", "m", "rw", "rm", "wm", "rwm")
NEEDS_V1 = pytest.mark.skipif(
    not (V1 / "devices.list").exists(), reason="this machine has no cgroup v1"
)
Answers = dict[tuple[str, int, int, str], bool]


@contextmanager
def cgroup(hierarchy: Path) -> Iterator[Path]:
    """Yield an empty cgroup, and remove it."""
    place = hierarchy / CGROUP / uuid4().hex[:12]
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        place.rmdir()
        with suppress(OSError):  # another test's cgroup is in it
            place.parent.rmdir()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a node of each device."""
    place = tmp_path_factory.mktemp("nodes")
    kinds = {"b": stat.S_IFBLK, "c": stat.S_IFCHR}
    for kind, major, minor in DEVICES:
        path = place / f"{kind}-{major}-{minor}"
        os.mknod(path, kinds[kind] | 0o600, os.makedev(major, minor))
    return place


def allowed_by_kernel(place: Path, nodes: Path) -> Answers:
    """Return which devices a process in a cgroup may open and make."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            (place / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
            os.write(writer, json.dumps(_tried(nodes)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answers = json.loads(file.read())
    os.waitpid(child, 0)
    asked = list(product(DEVICES, (*FLAGS, "m")))
    return {(*device, access): one for (device, access), one in zip(asked, answers, strict=True)}


def _tried(nodes: Path) -> list[bool]:
    answers = []
    for kind, major, minor in DEVICES:
        path = f"{nodes}/{kind}-{major}-{minor}"
        answers += [_is_open(path, flags) for flags in FLAGS.values()]
        answers.append(_is_made(f"{path}-made", kind, os.makedev(major, minor)))
    return answers


def _is_open(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except PermissionError:
        return False
    except OSError:
        return True  # no driver
    return True


def _is_made(path: str, kind: str, device: int) -> bool:
    try:
        os.mknod(path, (stat.S_IFBLK if kind == "b" else stat.S_IFCHR) | 0o600, device)
    except PermissionError:
        return False
    os.unlink(path)
    return True


def some_rules(random: Random, most: int = 6) -> list[Rule]:
    """Return rules as runtimes write them, wildcards included."""
    return [
        Rule(
            random.random() < 0.6,
            random.choice("abcbc"),
            random.choice((None, *MAJORS)),
            random.choice((None, *MINORS)),
            random.choice(ACCESS),
        )
        for _ in range(random.randrange(most))
    ]


def some_devices(random: Random, *, allow: bool) -> list[Rule]:
    """Return rules for one device each, as gpuhook adds them."""
    chosen = random.sample(DEVICES, random.randrange(3))
    return [Rule(allow, *device, random.choice(("rw", "rwm", "r"))) for device in chosen]


def attach(place: Path, code: bytes) -> None:
    """Attach a program to a cgroup."""
    loaded, directory = bpf_syscall.prog_load(code, "test"), os.open(place, os.O_RDONLY)
    try:
        bpf_syscall.prog_attach(directory, loaded, bpf_syscall.BPF_F_ALLOW_MULTI)
    finally:
        os.close(loaded)
        os.close(directory)


def v1_rules(place: Path) -> DeviceRules:
    """Return the device rules of a cgroup v1."""
    below = str(place).removeprefix(str(V1))
    return DeviceRules(DeviceCgroup("v1", below, str(place), str(V1), [str(place)]), None)


def verdicts(rules: DeviceRules) -> Answers:
    """Return gpuhook's verdicts on the same requests."""
    asked = product(DEVICES, (*FLAGS, "m"))
    return {(*one, access): rules.verdict(*one, access)[0] for one, access in asked}


@pytest.mark.soak
@pytest.mark.thorough
def test_device_programs_decide_as_the_rules(nodes: Path, figures: Figures) -> None:
    """In a cgroup v2, before and after gpuhook's change, and after it is dropped."""
    random, changes = Random(2), 0
    for _ in range(ROUNDS):
        base, default = some_rules(random), random.random() < 0.3
        allow, deny = some_devices(random, allow=True), some_devices(random, allow=False)
        taken = {rule.device for rule in deny}
        allow = [rule for rule in allow if rule.device not in taken]
        with cgroup(V2) as place:
            attach(place, program(base, default=default))
            below = str(place).removeprefix(str(V2))
            rules = DeviceRules(DeviceCgroup("v2", below, str(place), str(V2)), None)
            before = allowed_by_kernel(place, nodes)
            expected = {one: evaluate(base, *_request(one), default=default) for one in before}
            assert before == expected == verdicts(rules), (base, default)
            changes += rules.change(allow, deny)
            after = allowed_by_kernel(place, nodes)
            assert after == verdicts(rules), (base, allow, deny)
            assert after == _changed(before, allow, deny), (base, allow, deny)
            rules.drop([*allow, *deny])
            assert allowed_by_kernel(place, nodes) == before
            rules.close()
    figures.record("device programs: rule lists compared with the kernel", str(ROUNDS))
    figures.record("device programs: changes of gpuhook compared with the kernel", str(changes))


def _request(one: tuple[str, int, int, str]) -> tuple[str, str, int, int]:
    kind, major, minor, access = one
    return kind, access, major, minor


def _changed(before: Answers, allow: list[Rule], deny: list[Rule]) -> Answers:
    """Return what a change allows: whole requests that its rules name, and else what was allowed.

    A request of which a rule allows only a part is decided as before.
    """
    after = dict(before)
    for rule in allow:
        for one in (one for one in before if one[:3] == rule.device):
            after[one] = before[one] or set(one[3]) <= set(rule.access)
    for rule in deny:
        for one in (one for one in before if one[:3] == rule.device):
            after[one] = before[one] and not set(one[3]) & set(rule.access)
    return after


@NEEDS_V1
def test_denial_of_access_that_no_rule_allows_is_restored(nodes: Path) -> None:
    """A rule for the same device that allows other access only has nothing to deny."""
    with cgroup(V1) as place:
        (place / "devices.deny").write_text("a", encoding="ascii")
        (place / "devices.allow").write_text("c 195:7 m", encoding="ascii")
        rules = v1_rules(place)
        start, before = rules.snapshot(), allowed_by_kernel(place, nodes)
        rules.change([Rule(True, "c", 195, 0, "rw")], [Rule(False, "c", 195, 7, "rw")])
        rules.restore(start)
        assert allowed_by_kernel(place, nodes) == before


@NEEDS_V1
@pytest.mark.soak
@pytest.mark.thorough
def test_device_files_decide_as_the_verdict(nodes: Path, figures: Figures) -> None:
    """In a cgroup v1 that denies what it does not list, before and after gpuhook's change."""
    random, changes, refused = Random(3), 0, 0
    for _ in range(ROUNDS):
        base = [rule for rule in some_rules(random) if rule.type != "a"]
        allow, deny = some_devices(random, allow=True), some_devices(random, allow=False)
        taken = {rule.device for rule in deny}
        allow = [rule for rule in allow if rule.device not in taken]
        with cgroup(V1) as place:
            (place / "devices.deny").write_text("a", encoding="ascii")
            for rule in base:
                file = place / ("devices.allow" if rule.allow else "devices.deny")
                file.write_text(rule.line, encoding="ascii")
            rules = v1_rules(place)
            before = allowed_by_kernel(place, nodes)
            assert before == verdicts(rules), base
            start = rules.snapshot()
            try:
                changes += rules.change(allow, deny)
            except GpuhookError as error:
                if error.code != "GH1704":
                    raise
                refused += 1
                assert allowed_by_kernel(place, nodes) == before
                continue
            after = allowed_by_kernel(place, nodes)
            assert after == verdicts(rules), (base, allow, deny)
            for rule in (*allow, *deny):
                for letter in set(rule.access) - ({"m"} if not rule.allow else set()):
                    assert after[(*rule.device, letter)] == rule.allow, (base, allow, deny)
            rules.restore(start)
            assert allowed_by_kernel(place, nodes) == before, (base, allow, deny)
            rules.close()
    figures.record("device files: rule lists compared with the kernel", str(ROUNDS))
    figures.record("device files: changes of gpuhook compared with the kernel", str(changes))
    figures.record("device files: changes that cgroup v1 cannot express (GH1704)", str(refused))
