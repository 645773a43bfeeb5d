# SPDX-License-Identifier: Apache-2.0
"""An engine is configured completely or not at all, whatever fails."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.configure import (
    configure_engine,
    configure_record,
    engine_plan,
    engine_verification,
)
from gpuhook.engines.configure.configure_record import RecordStore
from gpuhook.engines.configure.engine_plan import (
    ConfigChange,
    EngineNode,
    EngineOptions,
    EnginePlan,
    ExpectedConfig,
    Service,
)
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.errors import GpuhookError
from tests.unit import configured_docker, docker_host
from tests.unit.configured_docker import BESIDE, MAIN
from tests.unit.docker_host import (
    ORIGINAL,
    OTHER,
    WANTED,
    configure,
    etc,
    program,
    runtimes,
    tree,
    undo,
)


@pytest.fixture(autouse=True)
def _docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configure_engine, "module_of", lambda _: configured_docker)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host whose daemon.json has an unusual mode and owner."""
    return docker_host.made(tmp_path / "host")


@pytest.mark.parametrize("where", [MAIN, BESIDE, "record.json"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EPERM])
def test_error_during_the_first_run_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    before = tree(root)
    put = Host.put

    def failing(host: Host, path: str, *rest: Any, **more: Any) -> None:
        if path.endswith(where):
            raise OSError(number, os.strerror(number), path)
        put(host, path, *rest, **more)

    monkeypatch.setattr(Host, "put", failing)
    with pytest.raises(GpuhookError) as caught:
        configure(root)
    assert caught.value.code == "GH2001"
    assert os.strerror(number) in caught.value.message
    assert tree(root) == before


def test_error_during_a_second_run_keeps_the_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = tree(root)
    configure(root)
    first = etc(root)
    put = Host.put

    def failing(host: Host, path: str, *rest: Any, **more: Any) -> None:
        if path == BESIDE and b"/opt" in rest[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        put(host, path, *rest, **more)

    monkeypatch.setattr(Host, "put", failing)
    with pytest.raises(GpuhookError):
        configure(root, OTHER)
    assert etc(root) == first
    monkeypatch.undo()
    monkeypatch.setattr(configure_engine, "module_of", lambda _: configured_docker)
    undo(root)
    assert tree(root) == original


def _killed(root: Path, step: int, wanted: EngineOptions | None) -> int:
    """Configure, or undo without `wanted`, in a process that is killed before the given step.

    Returns its exit status: 9 if it died, 0 if it had fewer steps.
    """

    def run() -> None:
        left = [step]
        for name in ("put", "remove", "make_directory", "remove_directory"):
            _dying(name, left)
        if wanted:
            configure(root, wanted)
        else:
            undo(root)

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
def test_kill_at_any_step_loses_nothing(tmp_path: Path, what: str, after: str) -> None:
    step = 0
    while True:
        root = tmp_path / str(step)
        (root / "etc/docker").mkdir(parents=True)
        (root / "var/lib").mkdir(parents=True)
        (root / MAIN[1:]).write_bytes(ORIGINAL)
        (root / MAIN[1:]).chmod(0o604)
        before = etc(root)
        if what != "first":
            configure(root)
        status = _killed(root, step, {"first": WANTED, "second": OTHER, "undo": None}[what])
        if after == "configure":
            configure(root, OTHER)
            assert runtimes(root) == ["gpuhook"]
        undo(root)
        assert etc(root) == before
        assert not (root / "var/lib/gpuhook").exists() or status == 9
        if status == 0:
            break
        step += 1
    assert step > 5


@pytest.mark.parametrize("renames", range(6))
def test_undo_removes_temporary_files_of_a_killed_run(root: Path, renames: int) -> None:
    before = tree(root)

    def run() -> None:
        left = [renames]
        rename = os.rename

        def counted(*words: Any, **more: Any) -> None:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            rename(*words, **more)

        os.rename = counted
        configure(root)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == (9 if renames < 5 else 0)
    assert not list(root.rglob("*/.gpuhook-*.json"))
    configure(root)
    undo(root)
    assert tree(root) == before


def test_record_of_a_newer_gpuhook_is_read(root: Path) -> None:
    before = tree(root)
    configure(root)
    file = root / "var/lib/gpuhook/configured/docker/record.json"
    document = json.loads(file.read_text()) | {"later": 1}
    for part in (document["wanted"], document["service"], *document["files"]):
        part["later"] = True
    kept = [one["kept"] for one in document["files"] if one["kept"]]
    assert kept
    for part in kept:
        part["later"] = 1
    file.write_text(json.dumps(document))
    undo(root)
    assert tree(root) == before


def test_concurrent_runs_take_turns(root: Path) -> None:
    before = tree(root)
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=configure, args=(root, one)) for one in (WANTED, OTHER) * 3]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert [one.exitcode for one in runs] == [0] * len(runs)
    assert runtimes(root) in (["nvidia"], ["gpuhook"])
    undo(root)
    assert tree(root) == before


def test_waiting_too_long_for_the_lock_is_a_fault(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configure_record, "_LOCK_TIME", 0.0)
    place = configure_record.directory("docker", None)
    with (
        configure_record.RecordStore(Host(str(root)), place).locked(),
        pytest.raises(GpuhookError) as caught,
    ):
        configure(root)
    assert caught.value.code == "GH2008"
    configure(root)


def test_file_that_changes_meanwhile_is_not_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = configure_record.RecordStore.save
    theirs = b'{"theirs": true}'

    def slow(*words: Any) -> None:
        save(*words)
        (root / MAIN[1:]).write_bytes(theirs)

    monkeypatch.setattr(configure_record.RecordStore, "save", slow)
    with pytest.raises(GpuhookError) as caught:
        configure(root)
    assert caught.value.code == "GH2012"
    assert (root / MAIN[1:]).read_bytes() == theirs
    assert not (root / BESIDE[1:]).exists()


def test_broken_file_is_named_and_nothing_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = ConfigChange(MAIN, ORIGINAL, b'{\n"runtimes": {},\n}')
    made = EnginePlan("docker", (change,), ExpectedConfig({}), Service())
    monkeypatch.setattr(configured_docker, "plan", lambda *_: made)
    before = tree(root)
    with pytest.raises(GpuhookError) as caught:
        configure(root)
    assert caught.value.code == "GH2003"
    assert f"{MAIN}:3" in caught.value.message
    assert tree(root) == before


def test_plan_without_its_expected_result_is_refused(root: Path) -> None:
    node = EngineNode(Host(str(root)))
    content = b'{"runtimes": {"nvidia": {"path": "/usr/bin/other"}}}'
    change = ConfigChange(MAIN, ORIGINAL, content)
    expected = ExpectedConfig({"nvidia": "/usr/bin/gpuhook-runtime"}, default="nvidia")
    with pytest.raises(GpuhookError) as caught:
        engine_verification.require_effect(
            EnginePlan("docker", (change,), expected, Service()), node
        )
    assert caught.value.code == "GH2004"
    assert "/usr/bin/other" in caught.value.message


def test_configuration_that_the_engine_refuses_is_reverted(root: Path) -> None:
    program(root, "dockerd", 'echo "no such key" >&2; exit 1')
    before = tree(root)
    with pytest.raises(GpuhookError) as caught:
        configure(root)
    assert caught.value.code == "GH2005"
    assert "no such key" in caught.value.message
    assert tree(root) == before


def test_engine_without_a_validate_option_is_not_verified(root: Path) -> None:
    program(root, "dockerd", 'echo "unknown flag: --validate" >&2; exit 125')
    assert configure(root).verified == ""


def test_program_that_cannot_start_gives_a_note(root: Path) -> None:
    program(root, "dockerd", "exit 0")
    (root / "usr/bin/dockerd").write_text("#!/of/another/machine\n")
    result = configure(root)
    assert result.verified == ""
    assert any(note.startswith("not verified: `dockerd --validate") for note in result.notes)
    assert runtimes(root) == ["nvidia"]


def test_verification_by_the_engine_is_reported(root: Path) -> None:
    program(root, "dockerd", "exit 0")
    assert configure(root).verified == f"dockerd --validate --config-file {MAIN}"


def test_missing_daemon_json_is_not_verified(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dockerd --validate` rejects the absence of the file; dockerd starts without it."""
    monkeypatch.setattr(configure_engine, "module_of", engine_plan.engine)
    program(root, "dockerd", '[ "$1" = --validate ] && [ ! -e "$3" ] && exit 1; exit 0')
    (root / MAIN[1:]).unlink()
    result = configure(root, replace(WANTED, route="hook"))
    assert [one.path for one in result.writes] == ["/usr/local/bin/nvidia-container-runtime-hook"]
    assert result.verified == ""


def test_broken_record_is_a_fault(root: Path) -> None:
    configure(root)
    file = root / "var/lib/gpuhook/configured/docker/record.json"
    file.write_text('{"schema": "gpuhook/configured/v99"}')
    with pytest.raises(GpuhookError) as caught:
        undo(root)
    assert caught.value.code == "GH2009"


def test_missing_backup_is_a_fault_before_any_change(root: Path) -> None:
    configure(root)
    before = etc(root)
    place = root / "var/lib/gpuhook/configured/docker"
    for one in place.iterdir():
        if one.name != "record.json":
            one.unlink()
    with pytest.raises(GpuhookError) as caught:
        undo(root)
    assert caught.value.code == "GH2009"
    assert etc(root) == before


def test_failed_rollback_is_reported_and_undone_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(root)
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
            configure(root)
    assert caught.value.code == "GH2002"
    undo(root)
    assert tree(root) == before


def test_configuration_printed_by_containerd_decides(root: Path) -> None:
    program(root, "containerd", 'case "$*" in *dump) echo "version = 2";; esac')
    (root / "c.toml").write_text("version = 2\n")
    plan = EnginePlan(
        "containerd", (), ExpectedConfig({"nvidia": "/x"}), Service(), config="/c.toml"
    )
    host = Host(str(root))
    programs = HostPrograms(host)
    with pytest.raises(GpuhookError) as caught:
        engine_verification.verify(programs, plan, EngineNode(host))
    assert caught.value.code == "GH2005"
    assert "have a runtime nvidia" in caught.value.message


def _is_file(directory: Path) -> None:
    directory.touch()


def _leads_nowhere(directory: Path) -> None:
    directory.mkdir()
    (directory / "daemon.json").symlink_to("/nowhere/daemon.json")


@pytest.mark.parametrize("is_dry", [False, True], ids=["real", "dry"])
@pytest.mark.parametrize(
    ("make", "reason", "advice"),
    [
        (_is_file, "Not a directory", "move away the file"),
        (_leads_nowhere, "No such file or directory", "fix the link"),
    ],
)
def test_impossible_path_fails_a_dry_run_too(
    make: Callable[[Path], None], reason: str, advice: str, is_dry: bool, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    make(tmp_path / "etc/docker")
    was = tree(tmp_path)
    with pytest.raises(GpuhookError) as caught:
        configure(tmp_path, is_dry=is_dry)
    assert caught.value.code == "GH2001"
    assert reason in caught.value.message
    assert advice in str(caught.value.hint)
    assert {path: one for path, one in tree(tmp_path).items() if "/var" not in path} == was


def test_read_only_file_system_fails_a_dry_run_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "fstatvfs", lambda _: ReadOnly)
    with pytest.raises(GpuhookError) as caught:
        configure(root, is_dry=True)
    assert caught.value.code == "GH2001"
    assert "Read-only" in caught.value.message


@pytest.mark.parametrize("call", [configure, undo])
def test_record_of_root_is_not_readable_by_others(
    root: Path, call: Callable[..., configure_engine.EngineResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(root)

    def load(_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/var/record.json")

    monkeypatch.setattr(RecordStore, "load", load)
    with pytest.raises(GpuhookError) as caught:
        call(root, is_dry=True)
    assert caught.value.code == "GH2013"
