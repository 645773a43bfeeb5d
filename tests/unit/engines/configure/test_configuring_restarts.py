# SPDX-License-Identifier: Apache-2.0
"""An engine is restarted or reloaded if the user requests it, and only then."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.engines.configure import configure_engine, engine_plan, engine_restart
from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions, EnginePlan, Service
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.errors import GpuhookError
from tests.unit import configured_docker, docker_host
from tests.unit.docker_host import OTHER, WANTED, configure, etc, program, undo


@pytest.fixture(autouse=True)
def _docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configure_engine, "module_of", lambda _: configured_docker)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host whose daemon.json has an unusual mode and owner."""
    return docker_host.made(tmp_path / "host")


_SYSTEMCTL = """
echo "$@" >> /tmp/calls
case "$1" in
  is-active) cat /tmp/state ;;
  restart|reload-or-restart)
    if grep -q gpuhook-runtime /etc/docker/daemon.json && [ -e /tmp/fails ]; then
      echo failed > /tmp/state; echo "Job for docker.service failed" >&2; exit 1
    fi
    if [ -e /tmp/replaced ]; then echo "Job for docker.service canceled." >&2; exit 1; fi
    echo active > /tmp/state ;;
esac
"""


def _calls(root: Path) -> list[str]:
    lines = (root / "tmp/calls").read_text().splitlines()
    return [line for line in lines if not line.startswith("is-active")]


def _systemd(root: Path) -> None:
    program(root, "systemctl", _SYSTEMCTL)
    (root / "bin/grep").symlink_to("sh")
    (root / "tmp/state").write_text("active\n")
    (root / "tmp/calls").touch()


def test_engine_is_restarted_once_on_request(root: Path) -> None:
    _systemd(root)
    configure(root)
    assert not _calls(root)
    assert configure(root, how="systemd").restarted == "restarted docker.service"
    assert configure(root, how="systemd").restarted == ""
    assert configure(root, how="auto").restarted == ""
    assert _calls(root) == ["restart docker.service"]
    undo(root, how="auto")
    assert _calls(root) == ["restart docker.service"] * 2


def test_undo_without_restart_names_the_command(root: Path) -> None:
    """A second undo restarts nothing, so the note cannot advise --restart."""
    _systemd(root)
    configure(root, how="auto")
    note = undo(root).notes[-1]
    assert note.endswith("when you restart it: systemctl restart docker.service")
    (root / "tmp/state").write_text("inactive\n")
    configure(root)
    assert undo(root).notes[-1].endswith("when you restart it")


def test_undoing_a_change_that_needed_a_restart_needs_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new settings need a reload, but the ones that they replace need a restart."""
    _systemd(root)
    configure(root, how="auto")
    plan = configured_docker.plan

    def reloading(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
        return replace(plan(node, wanted), service=Service(("docker.service",), reloads=True))

    monkeypatch.setattr(configured_docker, "plan", reloading)
    configure(root, OTHER, how="auto")
    configure(root, replace(OTHER, program="/opt/other"), how="auto")
    restart, reload = "restart docker.service", "reload-or-restart docker.service"
    assert _calls(root) == [restart, restart, reload]


@pytest.mark.parametrize(
    ("original", "is_enough"),
    [
        (None, False),
        ("{}", False),
        ('{"runtimes": {}}', False),
        ('{"default-runtime": "runc"}', False),
        ('\ufeff{"runtimes": {}, "default-runtime": "runc"}', True),
    ],
)
def test_undo_that_removes_a_key_needs_a_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch, original: str | None, *, is_enough: bool
) -> None:
    """At SIGHUP, dockerd keeps the old value of a key that daemon.json no longer has."""
    monkeypatch.setattr(configure_engine, "module_of", engine_plan.engine)
    _systemd(root)
    file = root / configured_docker.MAIN[1:]
    file.unlink()
    if original is not None:
        file.write_text(original, encoding="utf-8")
    wanted = replace(WANTED, is_default=True)
    monkeypatch.setattr(HostPrograms, "version", lambda *_: (28, 5))
    assert configure(root, wanted, how="auto").restarted == "reloaded docker.service"
    undone = undo(root, how="auto")
    assert undone.restarted == f"{'reloaded' if is_enough else 'restarted'} docker.service"
    assert ("a restart of dockerd stops its containers" in undone.notes) == (not is_enough)
    assert (file.read_text(encoding="utf-8") if file.exists() else None) == original


def test_a_runtime_that_becomes_the_default_needs_no_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configure_engine, "module_of", engine_plan.engine)
    monkeypatch.setattr(HostPrograms, "version", lambda *_: (28, 5))
    _systemd(root)
    configure(root, how="auto")
    chosen = replace(WANTED, is_default=True)
    assert configure(root, chosen, how="auto").restarted == "reloaded docker.service"
    assert configure(root, how="auto").restarted == "restarted docker.service"


def test_a_removed_key_needs_a_restart_also_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dockerd has not read the file without the key yet when the command runs again."""
    monkeypatch.setattr(configure_engine, "module_of", engine_plan.engine)
    monkeypatch.setattr(HostPrograms, "version", lambda *_: (28, 5))
    _systemd(root)
    chosen = replace(WANTED, is_default=True)
    configure(root, chosen, how="auto")
    assert configure(root).writes
    for _ in range(2):
        assert not configure(root).writes
    assert configure(root, how="auto").restarted == "restarted docker.service"
    assert configure(root, how="auto").restarted == ""
    assert configure(root, chosen).writes
    assert configure(root, chosen, how="auto").restarted == "reloaded docker.service"


def test_failed_restart_restores_the_files_and_the_engine(root: Path) -> None:
    _systemd(root)
    (root / "tmp/fails").touch()
    before = etc(root)
    with pytest.raises(GpuhookError) as caught:
        configure(root, how="auto")
    assert caught.value.code == "GH2006"
    assert "Job for docker.service failed" in caught.value.message
    assert etc(root) == before
    assert (root / "tmp/state").read_text() == "active\n"
    assert not (root / "var/lib/gpuhook").exists()


def test_restart_by_another_program_replaces_ours(root: Path) -> None:
    """Its job came after ours, so the engine has read the new files."""
    _systemd(root)
    (root / "tmp/replaced").touch()
    assert configure(root, how="auto").restarted == "restarted docker.service"
    assert "gpuhook-runtime" in (root / "etc/docker/daemon.json").read_text("utf-8")


@pytest.mark.parametrize("state", ["activating", "deactivating", "reloading"])
def test_restart_by_another_program_is_awaited(root: Path, state: str) -> None:
    """The engine may have read the old files."""
    _systemd(root)
    (root / "tmp/state").write_text(f"{state}\n")
    (root / "tmp/next").write_text("active\n")
    threading.Timer(0.3, (root / "tmp/next").rename, [root / "tmp/state"]).start()
    assert configure(root, how="auto").restarted == "restarted docker.service"
    assert _calls(root) == ["restart docker.service"]


def test_stopped_engine_needs_no_restart(root: Path) -> None:
    result = configure(root, how="auto")
    assert result.restarted == ""
    assert any("is not running" in note for note in result.notes)


# A unique name: other processes may run these tests at the same time.
SIGNALLED = Service((), (f"dockerd-of-{os.getpid()}",), reloads=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a process with its own name, which survives SIGHUP or not."""
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


def _restart_way(service: Service, how: engine_restart.How) -> engine_restart.Way | None:
    programs = HostPrograms(Host("/"))
    return engine_restart.chosen(programs, "docker", service, how)


def test_programs_do_not_get_the_keys_of_the_terminal(tmp_path: Path) -> None:
    """Ctrl-C signals the processes of the terminal's session: a restart that began is completed."""
    program = tmp_path / "session"
    program.write_text("#!/bin/sh\nexec cut -d ' ' -f 6 /proc/self/stat\n")
    program.chmod(0o755)
    ran = HostPrograms(Host("/"), {"session": str(program)}).run(("session",))
    assert ran is not None
    assert ran.output.strip().isdigit()
    assert int(ran.output) != os.getsid(0)


def test_reloading_daemon_gets_a_signal(
    daemon: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_restart, "_SETTLED", 0.1)
    process = daemon(lives_on=True)
    way = _restart_way(SIGNALLED, "auto")
    assert way is not None
    assert way.pid == process.pid
    engine_restart.carry_out(HostPrograms(Host("/")), "docker", way)
    assert process.poll() is None


def test_daemon_that_ends_at_the_signal_is_a_fault(
    daemon: Callable[..., subprocess.Popen[bytes]],
) -> None:
    daemon(lives_on=False)
    way = _restart_way(SIGNALLED, "signal")
    assert way is not None
    with pytest.raises(GpuhookError) as caught:
        engine_restart.carry_out(HostPrograms(Host("/")), "docker", way)
    assert caught.value.code == "GH2006"


@pytest.mark.parametrize("count", [1, 2])
def test_signal_is_sent_only_to_one_reloading_daemon(
    daemon: Callable[..., subprocess.Popen[bytes]], count: int
) -> None:
    """A daemon that does not reload gets no signal; two processes are ambiguous."""
    for _ in range(count):
        daemon(lives_on=True)
    service = Service((), SIGNALLED.processes, reloads=count == 2)
    with pytest.raises(GpuhookError) as caught:
        _restart_way(service, "auto")
    assert caught.value.code == "GH2007"


def test_process_of_another_root_gets_no_signal(
    daemon: Callable[..., subprocess.Popen[bytes]], root: Path
) -> None:
    daemon(lives_on=True)
    assert engine_restart.processes("/", SIGNALLED.processes)
    assert not engine_restart.processes(str(root), SIGNALLED.processes)
