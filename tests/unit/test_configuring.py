# SPDX-License-Identifier: Apache-2.0
"""Engines are configured all or not at all, and undone to the byte."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.configuring import (
    carrying_out,
    checking,
    difference,
    record,
    restarting,
    verifying,
)
from gpuhook.engines.configuring.carrying_out import Where
from gpuhook.engines.configuring.host import Host
from gpuhook.engines.configuring.host_programs import HostPrograms
from gpuhook.engines.configuring.plan import Change, Expected, Plan, Service
from gpuhook.engines.configuring.record import Store
from gpuhook.engines.configuring.wanted import Node, Wanted
from gpuhook.engines.configuring.work import Write
from gpuhook.errors import GpuhookError
from tests.unit import configured_docker
from tests.unit.configured_docker import BESIDE, MAIN

DOCKER = Where("docker")
WANTED = Wanted("wrapper", "nvidia", "/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-prestart")
OTHER = Wanted("wrapper", "gpuhook", "/opt/gpuhook-runtime", "/opt/gpuhook-prestart", True)
ORIGINAL = b'{ "debug":true,\n\t"runtimes": {} }'
Tree = dict[str, tuple[int, int, int, bytes]]


@pytest.fixture(autouse=True)
def _docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_out, "module_of", lambda _: configured_docker)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with a daemon.json of an own mode and owner."""
    place = tmp_path / "host"
    (place / "etc/docker").mkdir(parents=True)
    (place / "var/lib").mkdir(parents=True)
    (place / "tmp").mkdir()
    file = place / MAIN[1:]
    file.write_bytes(ORIGINAL)
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
    return place


def _tree(root: Path) -> Tree:
    """Return all that is below a root: modes, owners, contents, targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, content)
    return found


def _etc(root: Path) -> Tree:
    return {path: one for path, one in _tree(root).items() if f"{root}/etc" in path}


def _configure(root: Path, wanted: Wanted = WANTED, **more: Any) -> carrying_out.Result:
    return carrying_out.configure(Host(str(root)), DOCKER, wanted, **more)


def _undo(root: Path, **more: Any) -> carrying_out.Result:
    return carrying_out.undo(Host(str(root)), DOCKER, **more)


def _runtimes(root: Path) -> list[str]:
    return sorted(json.loads((root / MAIN[1:]).read_bytes())["runtimes"])


def test_undo_gives_back_every_byte_mode_and_owner(root: Path) -> None:
    before = _tree(root)
    result = _configure(root)
    assert [one.path for one in result.writes] == [MAIN, BESIDE]
    assert _runtimes(root) == ["nvidia"]
    assert _tree(root)[f"{root}{MAIN}"][:3] == before[f"{root}{MAIN}"][:3]
    _undo(root)
    assert _tree(root) == before


def test_undo_brings_back_a_mode_that_was_changed_since(root: Path) -> None:
    before = _tree(root)
    _configure(root)
    (root / MAIN[1:]).chmod(0o600)
    _undo(root)
    assert _tree(root) == before


def test_a_host_without_the_file_has_none_after_undo(root: Path) -> None:
    (root / MAIN[1:]).unlink()
    (root / "etc/docker").rmdir()
    before = _tree(root)
    _configure(root)
    assert stat.S_IMODE((root / MAIN[1:]).stat().st_mode) == 0o644
    _undo(root)
    assert _tree(root) == before


def test_a_second_run_writes_nothing(root: Path) -> None:
    _configure(root)
    before = {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()}
    result = _configure(root)
    assert not result.writes
    assert {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()} == before


def test_other_choices_replace_the_first_and_undo_gives_back_what_was_before_both(
    root: Path,
) -> None:
    before = _tree(root)
    _configure(root)
    _configure(root, OTHER)
    assert _runtimes(root) == ["gpuhook"]
    _undo(root)
    assert _tree(root) == before


def test_backups_are_nobody_elses(root: Path) -> None:
    _configure(root)
    place = root / "var/lib/gpuhook/configured/docker"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()} == {0o600}


def test_a_second_undo_has_nothing_to_do(root: Path) -> None:
    _configure(root)
    assert _undo(root).was_configured
    before = _tree(root)
    assert not _undo(root).was_configured
    assert _tree(root) == before


def test_of_an_edited_file_only_ours_goes(root: Path) -> None:
    _configure(root)
    file = root / MAIN[1:]
    document = json.loads(file.read_bytes()) | {"log-level": "warn"}
    file.write_text(json.dumps(document))
    result = _undo(root)
    assert json.loads(file.read_bytes()) == {"debug": True, "runtimes": {}, "log-level": "warn"}
    assert not (root / BESIDE[1:]).exists()
    assert any(MAIN in note and "edited since" in note for note in result.notes)


def test_an_edit_between_two_runs_survives_undo(root: Path) -> None:
    _configure(root)
    file = root / MAIN[1:]
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"log-level": "warn"}))
    _configure(root, OTHER)
    assert json.loads(file.read_bytes())["log-level"] == "warn"
    assert _runtimes(root) == ["gpuhook"]
    _undo(root)
    assert json.loads(file.read_bytes()) == {"debug": True, "runtimes": {}, "log-level": "warn"}


def test_a_file_that_somebody_has_removed_stays_away(root: Path) -> None:
    _configure(root)
    (root / MAIN[1:]).unlink()
    result = _undo(root)
    assert not (root / MAIN[1:]).exists()
    assert any("removed it since" in note for note in result.notes)


def test_a_directory_with_something_of_others_stays(root: Path) -> None:
    _configure(root)
    (root / "etc/docker/gpuhook.d/theirs").touch()
    result = _undo(root)
    assert (root / "etc/docker/gpuhook.d/theirs").exists()
    assert any("/etc/docker/gpuhook.d stays" in note for note in result.notes)


def test_a_link_stays_and_its_file_changes(root: Path) -> None:
    (root / "opt").mkdir()
    (root / MAIN[1:]).rename(root / "opt/daemon.json")
    (root / MAIN[1:]).symlink_to("/opt/daemon.json")
    before = _tree(root)
    _configure(root)
    assert (root / MAIN[1:]).is_symlink()
    assert b"gpuhook-runtime" in (root / "opt/daemon.json").read_bytes()
    _undo(root)
    assert _tree(root) == before


def test_a_link_never_leads_out_of_the_root(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / MAIN[1:]).unlink()
    (root / "etc/docker").rmdir()
    (root / "etc/docker").symlink_to(f"../../{outside.name}")
    before = _tree(root)
    _configure(root)
    assert not list(outside.iterdir())
    assert (root / "outside/daemon.json").exists()
    _undo(root)
    assert _tree(root) == before


def test_a_dry_run_shows_what_the_real_run_writes(root: Path, tmp_path: Path) -> None:
    before = _tree(root)
    dry = _configure(root, is_dry=True)
    assert _tree(root) == before
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", root, copy], check=True)
    text = difference.text(dry.writes).encode("utf-8", "surrogateescape")
    subprocess.run(["patch", "-s", "-p1", "-d", copy], input=text, check=True)
    assert _configure(root).writes == dry.writes
    for path in (MAIN, BESIDE):
        assert (copy / path[1:]).read_bytes() == (root / path[1:]).read_bytes()
    dry = _undo(root, is_dry=True)
    assert _undo(root).writes == dry.writes


@pytest.mark.parametrize("where", [MAIN, BESIDE, "record.json"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EPERM])
def test_an_error_half_way_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    before = _tree(root)
    put = Host.put

    def failing(host: Host, path: str, *rest: Any, **more: Any) -> None:
        if path.endswith(where):
            raise OSError(number, os.strerror(number), path)
        put(host, path, *rest, **more)

    monkeypatch.setattr(Host, "put", failing)
    with pytest.raises(GpuhookError) as caught:
        _configure(root)
    assert caught.value.code == "GH2001"
    assert os.strerror(number) in caught.value.message
    assert _tree(root) == before


def test_an_error_half_way_of_a_second_run_keeps_the_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = _tree(root)
    _configure(root)
    first = _etc(root)
    put = Host.put

    def failing(host: Host, path: str, *rest: Any, **more: Any) -> None:
        if path == BESIDE and b"/opt" in rest[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        put(host, path, *rest, **more)

    monkeypatch.setattr(Host, "put", failing)
    with pytest.raises(GpuhookError):
        _configure(root, OTHER)
    assert _etc(root) == first
    monkeypatch.undo()
    monkeypatch.setattr(carrying_out, "module_of", lambda _: configured_docker)
    _undo(root)
    assert _tree(root) == original


def _killed(root: Path, step: int, wanted: Wanted | None) -> int:
    """Configure, or undo without `wanted`, in a process that dies before its step of that number.

    Returns its exit status: 9 if it died, 0 if it had fewer steps.
    """

    def run() -> None:
        left = [step]
        for name in ("put", "remove", "make_directory", "remove_directory"):
            _dying(name, left)
        if wanted:
            _configure(root, wanted)
        else:
            _undo(root)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode or 0


def _dying(name: str, left: list[int]) -> None:
    real = getattr(Host, name)

    def counted(*words: Any, **more: Any) -> Any:
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return real(*words, **more)

    setattr(Host, name, counted)


@pytest.mark.parametrize("after", ["undo", "configure"])
@pytest.mark.parametrize("what", ["first", "second", "undo"])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, what: str, after: str) -> None:
    step = 0
    while True:
        root = tmp_path / str(step)
        (root / "etc/docker").mkdir(parents=True)
        (root / "var/lib").mkdir(parents=True)
        (root / MAIN[1:]).write_bytes(ORIGINAL)
        (root / MAIN[1:]).chmod(0o604)
        before = _etc(root)
        if what != "first":
            _configure(root)
        status = _killed(root, step, {"first": WANTED, "second": OTHER, "undo": None}[what])
        if after == "configure":
            _configure(root, OTHER)
            assert _runtimes(root) == ["gpuhook"]
        _undo(root)
        assert _etc(root) == before
        assert not (root / "var/lib/gpuhook").exists() or status == 9
        if status == 0:
            break
        step += 1
    assert step > 5


@pytest.mark.parametrize("renames", range(6))
def test_a_kill_before_a_rename_leaves_nothing_behind_undo(root: Path, renames: int) -> None:
    before = _tree(root)

    def run() -> None:
        left = [renames]
        rename = os.rename

        def counted(*words: Any, **more: Any) -> None:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            rename(*words, **more)

        os.rename = counted
        _configure(root)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == (9 if renames < 5 else 0)
    assert not list(root.rglob("*/.gpuhook-*.json"))
    _configure(root)
    _undo(root)
    assert _tree(root) == before


def test_a_record_of_a_newer_gpuhook_is_understood(root: Path) -> None:
    before = _tree(root)
    _configure(root)
    file = root / "var/lib/gpuhook/configured/docker/record.json"
    document = json.loads(file.read_text()) | {"later": 1}
    for part in (document["wanted"], document["service"], *document["files"]):
        part["later"] = True
    kept = [one["kept"] for one in document["files"] if one["kept"]]
    assert kept
    for part in kept:
        part["later"] = 1
    file.write_text(json.dumps(document))
    _undo(root)
    assert _tree(root) == before


def test_two_at_once_take_turns(root: Path) -> None:
    before = _tree(root)
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=_configure, args=(root, one)) for one in (WANTED, OTHER) * 3]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert [one.exitcode for one in runs] == [0] * len(runs)
    assert _runtimes(root) in (["nvidia"], ["gpuhook"])
    _undo(root)
    assert _tree(root) == before


def test_who_waits_too_long_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_PATIENCE", 0.0)
    place = record.directory("docker", None)
    with record.Store(Host(str(root)), place).locked(), pytest.raises(GpuhookError) as caught:
        _configure(root)
    assert caught.value.code == "GH2008"
    _configure(root)


def test_a_file_that_changes_meanwhile_is_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = record.Store.save
    theirs = b'{"theirs": true}'

    def slow(*words: Any) -> None:
        save(*words)
        (root / MAIN[1:]).write_bytes(theirs)

    monkeypatch.setattr(record.Store, "save", slow)
    with pytest.raises(GpuhookError) as caught:
        _configure(root)
    assert caught.value.code == "GH2012"
    assert (root / MAIN[1:]).read_bytes() == theirs
    assert not (root / BESIDE[1:]).exists()


def test_a_broken_file_is_named_and_nothing_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Change(MAIN, ORIGINAL, b'{\n"runtimes": {},\n}')
    made = Plan("docker", (change,), Expected({}), Service())
    monkeypatch.setattr(configured_docker, "plan", lambda *_: made)
    before = _tree(root)
    with pytest.raises(GpuhookError) as caught:
        _configure(root)
    assert caught.value.code == "GH2003"
    assert f"{MAIN}:3" in caught.value.message
    assert _tree(root) == before


def test_a_plan_that_does_not_do_what_it_says_is_refused(root: Path) -> None:
    node = Node(Host(str(root)))
    content = b'{"runtimes": {"nvidia": {"path": "/usr/bin/other"}}}'
    change = Change(MAIN, ORIGINAL, content)
    expected = Expected({"nvidia": "/usr/bin/gpuhook-runtime"}, default="nvidia")
    with pytest.raises(GpuhookError) as caught:
        checking.require(Plan("docker", (change,), expected, Service()), node)
    assert caught.value.code == "GH2004"
    assert "/usr/bin/other" in caught.value.message


def test_what_the_engine_refuses_is_taken_back(root: Path) -> None:
    _program(root, "dockerd", 'echo "no such key" >&2; exit 1')
    before = _tree(root)
    with pytest.raises(GpuhookError) as caught:
        _configure(root)
    assert caught.value.code == "GH2005"
    assert "no such key" in caught.value.message
    assert _tree(root) == before


def test_an_engine_without_the_check_is_not_asked(root: Path) -> None:
    _program(root, "dockerd", 'echo "unknown flag: --validate" >&2; exit 125')
    assert _configure(root).verified == ""


def test_an_engines_program_that_cannot_be_started_refuses_nothing(root: Path) -> None:
    _program(root, "dockerd", "exit 0")
    (root / "usr/bin/dockerd").write_text("#!/of/another/machine\n")
    result = _configure(root)
    assert result.verified == ""
    assert any(note.startswith("not verified: `dockerd --validate") for note in result.notes)
    assert _runtimes(root) == ["nvidia"]


def test_what_the_engine_finds_right_is_told(root: Path) -> None:
    _program(root, "dockerd", "exit 0")
    assert _configure(root).verified == f"dockerd --validate --config-file {MAIN}"


def _program(root: Path, name: str, text: str) -> None:
    """Put a shell script on the host, and a shell to run it."""
    if os.geteuid() != 0:
        pytest.skip("the host's programs are run by chroot(2)")
    places = [root / one for one in ("bin", "usr/bin")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    if not (root / "bin/sh").exists():
        subprocess.run(["cp", "/bin/busybox", root / "bin/sh"], check=True)
        for tool in ("cat", "echo"):
            (root / "bin" / tool).symlink_to("sh")
    file = root / "usr/bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


_SYSTEMCTL = """
echo "$@" >> /tmp/calls
case "$1" in
  is-active) cat /tmp/state ;;
  restart|reload-or-restart)
    if grep -q gpuhook-runtime /etc/docker/daemon.json && [ -e /tmp/fails ]; then
      echo failed > /tmp/state; echo "Job for docker.service failed" >&2; exit 1
    fi
    echo active > /tmp/state ;;
esac
"""


def _calls(root: Path) -> list[str]:
    lines = (root / "tmp/calls").read_text().splitlines()
    return [line for line in lines if not line.startswith("is-active")]


def _systemd(root: Path) -> None:
    _program(root, "systemctl", _SYSTEMCTL)
    (root / "bin/grep").symlink_to("sh")
    (root / "tmp/state").write_text("active\n")
    (root / "tmp/calls").touch()


def test_an_engine_is_restarted_only_if_asked_and_only_once(root: Path) -> None:
    _systemd(root)
    _configure(root)
    assert not _calls(root)
    assert _configure(root, how="systemd").restarted == "restarted docker.service"
    assert _configure(root, how="systemd").restarted == ""
    assert _configure(root, how="auto").restarted == ""
    assert _calls(root) == ["restart docker.service"]
    _undo(root, how="auto")
    assert _calls(root) == ["restart docker.service"] * 2


def test_what_took_a_restart_takes_one_to_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload would be enough for the new choices, but not for what they replace."""
    _systemd(root)
    _configure(root, how="auto")
    plan = configured_docker.plan

    def reloading(node: Node, wanted: Wanted) -> Plan:
        return replace(plan(node, wanted), service=Service(("docker.service",), reloads=True))

    monkeypatch.setattr(configured_docker, "plan", reloading)
    _configure(root, OTHER, how="auto")
    _configure(root, WANTED, how="auto")
    restart, reload = "restart docker.service", "reload-or-restart docker.service"
    assert _calls(root) == [restart, restart, reload]


def test_an_engine_that_fails_gets_its_files_back_and_runs_again(root: Path) -> None:
    _systemd(root)
    (root / "tmp/fails").touch()
    before = _etc(root)
    with pytest.raises(GpuhookError) as caught:
        _configure(root, how="auto")
    assert caught.value.code == "GH2006"
    assert "Job for docker.service failed" in caught.value.message
    assert _etc(root) == before
    assert (root / "tmp/state").read_text() == "active\n"
    assert not (root / "var/lib/gpuhook").exists()


def test_an_engine_that_does_not_run_needs_no_restart(root: Path) -> None:
    result = _configure(root, how="auto")
    assert result.restarted == ""
    assert any("does not run" in note for note in result.notes)


def test_a_broken_record_is_named(root: Path) -> None:
    _configure(root)
    file = root / "var/lib/gpuhook/configured/docker/record.json"
    file.write_text('{"schema": "gpuhook/configured/v99"}')
    with pytest.raises(GpuhookError) as caught:
        _undo(root)
    assert caught.value.code == "GH2009"


def test_a_lost_backup_is_named_before_anything_is_written(root: Path) -> None:
    _configure(root)
    before = _etc(root)
    place = root / "var/lib/gpuhook/configured/docker"
    for one in place.iterdir():
        if one.name != "record.json":
            one.unlink()
    with pytest.raises(GpuhookError) as caught:
        _undo(root)
    assert caught.value.code == "GH2009"
    assert _etc(root) == before


def test_what_cannot_be_put_back_is_told_and_undone_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _tree(root)
    put = Host.put
    broken = [False]

    def failing(host: Host, path: str, *rest: Any, **more: Any) -> None:
        broken[0] = broken[0] or path == BESIDE
        if broken[0]:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        put(host, path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Host, "put", failing)
        with pytest.raises(GpuhookError) as caught:
            _configure(root)
    assert caught.value.code == "GH2002"
    _undo(root)
    assert _tree(root) == before


def test_extended_attributes_stay(root: Path) -> None:
    file = root / MAIN[1:]
    try:
        os.setxattr(file, "user.kept", b"yes")
    except OSError:
        pytest.skip("this file system has no attributes of users")
    _configure(root)
    assert os.getxattr(file, "user.kept") == b"yes"


def test_a_diff_says_where_a_last_line_has_no_end() -> None:
    text = difference.of(Write("/x", b"a\nb", b"a\nb\n", None))
    assert text.splitlines()[-3:] == ["-b", "\\ No newline at end of file", "+b"]


def test_containerds_own_print_is_believed_more_than_the_plan(root: Path) -> None:
    _program(root, "containerd", 'case "$*" in *dump) echo "version = 2";; esac')
    (root / "c.toml").write_text("version = 2\n")
    plan = Plan("containerd", (), Expected({"nvidia": "/x"}), Service(), config="/c.toml")
    host = Host(str(root))
    programs = HostPrograms(host)
    with pytest.raises(GpuhookError) as caught:
        verifying.verify(programs, plan, Node(host))
    assert caught.value.code == "GH2005"
    assert "have a runtime nvidia" in caught.value.message


SIGNALLED = Service((), ("dockerd-of-a-test",), reloads=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return what starts a process of an own name that lives on, or not, at SIGHUP."""
    program = tmp_path / SIGNALLED.processes[0]
    subprocess.run(["cp", "/bin/sleep", program], check=True)
    started: list[subprocess.Popen[bytes]] = []

    def start(*, lives_on: bool) -> subprocess.Popen[bytes]:
        hup = "--ignore-signal=HUP" if lives_on else "--default-signal=HUP"
        process = subprocess.Popen(["env", hup, program, "60"])
        started.append(process)
        while os.readlink(f"/proc/{process.pid}/exe") != str(program):
            time.sleep(0.01)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def _way(service: Service, how: restarting.How) -> restarting.Way | None:
    programs = HostPrograms(Host("/"))
    return restarting.chosen(programs, "docker", service, how)


def test_a_daemon_that_reloads_is_sent_a_signal(
    daemon: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarting, "_SETTLED", 0.1)
    process = daemon(lives_on=True)
    way = _way(SIGNALLED, "auto")
    assert way is not None
    assert way.pid == process.pid
    restarting.carry_out(HostPrograms(Host("/")), "docker", way)
    assert process.poll() is None


def test_a_daemon_that_ends_at_the_signal_is_a_fault(
    daemon: Callable[..., subprocess.Popen[bytes]],
) -> None:
    daemon(lives_on=False)
    way = _way(SIGNALLED, "signal")
    assert way is not None
    with pytest.raises(GpuhookError) as caught:
        restarting.carry_out(HostPrograms(Host("/")), "docker", way)
    assert caught.value.code == "GH2006"


@pytest.mark.parametrize("count", [1, 2])
def test_no_daemon_is_ended_by_a_signal(
    daemon: Callable[..., subprocess.Popen[bytes]], count: int
) -> None:
    """One that does not reload is not told; of two nobody knows which is meant."""
    for _ in range(count):
        daemon(lives_on=True)
    service = Service((), SIGNALLED.processes, reloads=count == 2)
    with pytest.raises(GpuhookError) as caught:
        _way(service, "auto")
    assert caught.value.code == "GH2007"


def test_a_process_of_another_root_is_not_the_hosts(
    daemon: Callable[..., subprocess.Popen[bytes]], root: Path
) -> None:
    daemon(lives_on=True)
    assert restarting.processes("/", SIGNALLED.processes)
    assert not restarting.processes(str(root), SIGNALLED.processes)


def _is_file(directory: Path) -> None:
    directory.touch()


def _leads_nowhere(directory: Path) -> None:
    directory.mkdir()
    (directory / "daemon.json").symlink_to("/nowhere/daemon.json")


@pytest.mark.parametrize("is_dry", [False, True], ids=["real", "dry"])
@pytest.mark.parametrize(
    ("make", "reason", "advice"),
    [
        (_is_file, "Not a directory", "move what is there away"),
        (_leads_nowhere, "No such file or directory", "mend the link"),
    ],
)
def test_where_no_file_can_be_a_dry_run_fails_too(
    make: Callable[[Path], None], reason: str, advice: str, is_dry: bool, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    make(tmp_path / "etc/docker")
    was = _tree(tmp_path)
    with pytest.raises(GpuhookError) as caught:
        _configure(tmp_path, is_dry=is_dry)
    assert caught.value.code == "GH2001"
    assert reason in caught.value.message
    assert advice in str(caught.value.hint)
    assert {path: one for path, one in _tree(tmp_path).items() if "/var" not in path} == was


def test_a_read_only_file_system_fails_a_dry_run_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "fstatvfs", lambda _: ReadOnly)
    with pytest.raises(GpuhookError) as caught:
        _configure(root, is_dry=True)
    assert caught.value.code == "GH2001"
    assert "Read-only" in caught.value.message


@pytest.mark.parametrize("call", [_configure, _undo])
def test_a_record_of_root_is_not_for_others(
    root: Path, call: Callable[..., carrying_out.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    _configure(root)

    def load(_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/var/record.json")

    monkeypatch.setattr(Store, "load", load)
    with pytest.raises(GpuhookError) as caught:
        call(root, is_dry=True)
    assert caught.value.code == "GH2013"
