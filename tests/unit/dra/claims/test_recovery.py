# SPDX-License-Identifier: Apache-2.0
"""A driver that starts completes what kills, damage and reboots have left, and never crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.dra.claims.checkpoint import checkpoint_file, durable_file, recovery
from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint
from gpuhook.dra.claims.prepared_claim import PreparedClaim
from tests.kubelet.allocated_claims import allocated, named, result
from tests.refusal import refused
from tests.unit.dra.claims.claims_world import World

A, B, C = named("a"), named("b"), named("c")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world with the claims a and b, prepared in this order, and an allocated c."""
    made = World(tmp_path)
    for number, name in enumerate((A, B, C)):
        made.server.add(allocated(name, result(f"gpu-{number}")))
    made.prepare(A)
    made.prepare(B)
    return made


def path(world: World) -> Path:
    return Path(world.checkpoint.path)


def changed_head(data: bytes, **values: object) -> bytes:
    head, _, body = data.partition(b"\n")
    return json.dumps({**json.loads(head), **values}).encode() + b"\n" + body


def changed_body(data: bytes) -> bytes:
    return data.replace(b"gpu-0", b"gpu-7")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "without body": lambda data: data.partition(b"\n")[0],
    "one bit": changed_body,
    "version 2": lambda data: changed_head(data, version=2),
    "another format": lambda data: b'{"v1": {}, "checksum": 1}',
    "binary": lambda data: b"\xff\x00" * 4096,
    "deep": lambda data: b"[" * 200_000,
    "a list": lambda data: b"[]\n{}",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_rebuilt(world: World, damage: str) -> None:
    before = world.prepare(A)
    data = DAMAGE[damage](path(world).read_bytes())
    path(world).write_bytes(data)
    world.server.claims.clear()  # the CDI specs have all that is needed
    world.restart()
    assert world.prepared() == ["a", "b"]
    assert Path(f"{path(world)}.damaged").read_bytes() == data
    assert world.prepare(A) == before
    world.unprepare(B)
    world.restart()
    assert world.prepared() == ["a"]


@pytest.mark.parametrize("damage", ["empty", "truncated"])
def test_damage_of_both_copies_is_survived(world: World, damage: str) -> None:
    for file in (path(world), Path(world.checkpoint.previous)):
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
    world.restart()
    assert world.prepared() == ["a", "b"]


def test_a_deleted_checkpoint_is_rebuilt(world: World) -> None:
    """People delete a file that seems to be the cause of a fault."""
    path(world).unlink()
    Path(world.checkpoint.previous).unlink()
    world.restart()
    assert world.prepared() == ["a", "b"]


def test_claims_of_the_former_copy_are_kept_only_if_they_exist(world: World) -> None:
    """The last change may have ended a claim, which would then exclude others for ever."""
    world.unprepare(B)
    path(world).write_bytes(b"")
    del world.server.claims["b"]
    world.restart()
    assert world.prepared() == ["a"]


def test_a_claim_without_a_spec_is_kept_if_the_api_server_does_not_answer(world: World) -> None:
    world.unprepare(B)
    world.prepare(B)
    Path(world.specs.path(B.uid)).unlink()
    world.prepare(C)  # the former copy now has b
    path(world).write_bytes(b"")

    def absent(path: str) -> None:
        from gpuhook.errors import fault

        raise fault("GH1862", where="api", reason="no route")

    world.server.before = absent
    world.restart()
    assert world.prepared() == ["a", "b", "c"]
    world.preparation.refresh(world.state)
    assert world.specs.has(B.uid)


def test_damage_while_the_driver_runs_loses_nothing(world: World) -> None:
    path(world).write_bytes(b"\0")
    world.prepare(C)
    assert world.prepared() == ["a", "b", "c"]
    path(world).unlink()
    world.unprepare(A)
    world.restart()
    assert world.prepared() == ["b", "c"]


def test_after_a_reboot_nothing_is_prepared(world: World) -> None:
    world.boot = "boot-2"
    world.restart()
    assert world.prepared() == []
    assert list(world.specs.uids()) == []
    world.prepare(A)


def test_specs_of_another_boot_are_not_claims(world: World) -> None:
    path(world).unlink()
    Path(world.checkpoint.previous).unlink()
    world.boot = "boot-2"
    world.restart()
    assert world.prepared() == []
    assert list(world.specs.uids()) == []


def test_specs_that_no_driver_wrote_are_no_claims(world: World) -> None:
    spec = Path(world.specs.path("0000-1111"))
    spec.write_text("# gpuhook: {\ncdiVersion: 0.5.0\n", encoding="utf-8")
    stranger = spec.with_name("k8s.gpu.nvidia.com-claim_1.yaml")
    stranger.write_text("cdiVersion: 0.5.0\n", encoding="utf-8")
    path(world).write_bytes(b"")
    world.restart()
    assert world.prepared() == ["a", "b"]
    assert not spec.exists()
    assert stranger.exists()


class KilledError(BaseException):
    """The process ends at this moment."""


def kill(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End the next calls at file operation `number`; later operations do nothing either."""
    count = iter(range(10_000))
    for name in ("rename", "unlink", "link", "fsync"):
        real = getattr(os, name)

        def step(*args: object, real: object = real, **named: object) -> object:
            if next(count) >= number:
                raise KilledError
            return real(*args, **named)  # type: ignore[operator]

        monkeypatch.setattr(os, name, step)


@pytest.mark.parametrize("number", range(18))
@pytest.mark.parametrize("call", ["prepare", "unprepare"])
def test_a_kill_at_any_step_is_recovered(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    name, other = (C, A) if call == "prepare" else (A, C)
    with monkeypatch.context() as patched:
        kill(world, patched, number)
        try:
            getattr(world, call)(name)
        except KilledError:
            pass
        else:
            assert number > 4  # so many steps need a kill
    world.restart()
    kept = {one.claim.name for one in world.checkpoint.claims().values()}
    assert kept - {name} == {A, B} - {name}
    assert {A.uid, B.uid, C.uid} >= set(world.specs.uids()) >= {B.uid}
    assert not [file for file in world.files() if file.endswith(".tmp")]
    getattr(world, call)(name)  # the kubelet repeats the call
    if call == "prepare":
        assert world.prepare(name) == world.prepare(name)
        assert world.prepared() == ["a", "b", "c"]
    else:
        assert world.prepared() == ["b"]
        assert not world.specs.has(name.uid)
    world.prepare(other)


def test_a_second_driver_leaves_the_work_of_the_first(world: World) -> None:
    """During a rolling update, an intent is of a driver that runs."""
    first = world.preparation
    seen: list[list[str]] = []

    def second_driver() -> None:
        world.restart(is_alone=False)
        seen.append(world.prepared())

    real = world.specs.write

    def write(*args: object) -> None:
        second_driver()
        real(*args)  # type: ignore[arg-type]
        world.restart(is_alone=False)

    world.specs.write = write  # type: ignore[method-assign, assignment]
    first.prepare(C, lambda step: None)
    assert seen == [["a", "b", "c"]]
    assert world.prepared() == ["a", "b", "c"]
    assert world.specs.has(C.uid)


def test_two_drivers_see_the_claims_of_each_other(world: World) -> None:
    first, second = world.checkpoint, ClaimCheckpoint(str(path(world).parent), world.boot)
    assert second.claims() == first.claims()
    world.unprepare(A)
    assert second.claims().keys() == {B.uid}
    second.change(lambda claims: claims.clear())
    assert first.claims() == {}


def test_a_lock_that_a_stopped_driver_holds_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_file, "_LOCK_TIMEOUT", 0.1)
    other = ClaimCheckpoint(str(path(world).parent), world.boot)
    with other.lock(), refused("GH2604", "lock"):
        world.prepare(C)
    world.prepare(C)


def test_a_driver_that_runs_is_known_to_the_next(world: World) -> None:
    first = recovery.RunningMark(world.checkpoint)
    assert first.is_alone
    first.share()
    second = recovery.RunningMark(world.checkpoint)
    assert not second.is_alone
    second.share()
    second.close()
    first.close()
    third = recovery.RunningMark(world.checkpoint)
    assert third.is_alone
    third.close()


def test_the_mark_of_a_killed_driver_is_gone(world: World) -> None:
    code = (
        "import os, sys; from gpuhook.dra.claims.checkpoint import recovery, checkpoint_file;"
        "mark = recovery.RunningMark(checkpoint_file.ClaimCheckpoint(sys.argv[1], ''));"
        "mark.share(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path(world).parent)], check=False)
    mark = recovery.RunningMark(world.checkpoint)
    assert mark.is_alone
    mark.close()


def test_leftover_temporary_files_are_removed_by_a_driver_alone(world: World) -> None:
    left = Path(durable_file._temporary(world.specs.path(C.uid)))
    left.write_bytes(b"")
    world.restart(is_alone=False)
    assert left.exists()
    world.restart()
    assert not left.exists()


def test_a_change_after_a_reboot_revives_no_claim(world: World) -> None:
    """Drain changes the checkpoint before any driver has started."""
    later = ClaimCheckpoint(os.path.dirname(world.checkpoint.path), "boot-2")

    def end(claims: dict[str, PreparedClaim]) -> None:
        claims.pop(A.uid, None)

    later.change(end)
    world.boot = "boot-2"
    world.restart()
    assert world.prepared() == []
