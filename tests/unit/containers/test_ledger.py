# SPDX-License-Identifier: Apache-2.0
"""The ledger: entries of containers that exist, and of no others."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger, ledger_warnings
from gpuhook.containers.warm import ledger_changes
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import procfs


@pytest.fixture(autouse=True)
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the ledger its own state directory, and return the directory of its entries."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state/containers"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return the state root of a runtime, with the state of the container `here`."""
    (tmp_path / "runc/here").mkdir(parents=True)
    return str(tmp_path / "runc")


def entered(root: str, identity: str, **entry: Any) -> None:
    ledger.record(root, identity, {"pid": 0, "started": None, **entry})


def living() -> list[str]:
    return [entry["id"] for entry in ledger.living()]


def test_empty_ledger() -> None:
    """A node without entries; reading creates no directory."""
    assert ledger.living() == []
    assert not os.path.exists(ledger.directory())


def test_entry_lasts_as_long_as_the_state_of_the_runtime(root: str, entries: Path) -> None:
    """A writer removes an entry whose state is gone."""
    entered(root, "here", pod="p")
    entered(root, "gone")
    assert [(e["id"], e["pod"], e["root"]) for e in ledger.living()] == [("here", "p", root)]
    assert len(os.listdir(entries)) == 2
    os.rmdir(root + "/here")
    assert living() == []
    assert len(os.listdir(entries)) == 2
    ledger.living(is_swept=True)
    assert os.listdir(entries) == []


def test_expected_container(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry without a process applies until its time, and then to the state of a runtime."""
    for identity in ("here", "gone"):
        ledger.record(root, identity, {"expected": time.monotonic() + 30})
    ledger.record("", "unknown", {"expected": time.monotonic() + 30})
    assert sorted(living()) == ["gone", "here", "unknown"]
    for jump in (10 * YEAR, -YEAR):
        monkeypatch.setattr(time, "time", lambda jump=jump: 1_700_000_000 + jump)
        assert sorted(living()) == ["gone", "here", "unknown"]
    later = time.monotonic() + 31
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert living() == ["here"]
    # A time of another boot, or of the clock of earlier versions.
    ledger.record(root, "gone", {"expected": later + 3600})
    assert living() == ["here"]
    ledger.record(root, "gone", {"expected": "soon"})
    assert living() == ["here"]


def test_missing_state_root(root: str, entries: Path) -> None:
    """It says nothing about the container to a reader; a writer on the host removes the entry."""
    entered(root, "here")
    os.rename(root, root + "-moved")
    assert living() == ["here"]
    assert ledger.is_alive(ledger.living()[0]) is None
    assert len(os.listdir(entries)) == 1
    ledger.living(is_swept=True)
    assert os.listdir(entries) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user")
def test_invisible_state_root_keeps_the_entry() -> None:
    """Without permission to look, a writer must assume that the container exists."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        os.makedirs(f"{place}/closed/runc/here")
        os.chmod(f"{place}/closed", 0o700)
        os.mkdir(f"{place}/state")
        os.chown(f"{place}/state", nobody, nobody)
        code = (
            "from gpuhook.containers.hot import ledger\n"
            "entry = {'pid': 0, 'started': None}\n"
            f"ledger.record('{place}/closed/runc', 'here', entry)\n"
            "print(len(ledger.living(is_swept=True)), len(ledger.living()))"
        )
        done = subprocess.run(
            ["setpriv", f"--reuid={nobody}", "--clear-groups", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "GPUHOOK_STATE_DIR": f"{place}/state"},
            check=False,
        )
    assert done.stdout == "1 1\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_mounted_ledger_keeps_its_entries(root: str, entries: Path) -> None:
    """In a pod that mounts the ledger alone, a writer cannot know that a container has exited."""
    entered(root, "here")
    entered("", "hook", pid=os.getpid(), started=1)
    state = entries.parent
    script = (
        f"mkdir /run/moved && mount --bind {state} /run/moved && mount -t tmpfs none {state.parent}"
        f' && mkdir {state} && mount --bind /run/moved {state} && exec "$@"'
    )
    code = "from gpuhook.containers.hot import ledger; print(len(ledger.living(is_swept=True)))"
    command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /run && {script}", "sh"]
    command += [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr
    assert len(os.listdir(entries)) == 2


def test_relative_state_root_is_made_absolute(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is relative to the working directory of the create, not of the reader."""
    monkeypatch.chdir(tmp_path)
    entered("runc", "here")
    monkeypatch.chdir("/")
    assert [entry["root"] for entry in ledger.living()] == [root]


def test_creator_process_keeps_the_entry() -> None:
    """Until the runtime has its state, and without a state root, a running process counts."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        started = procfs.start_time(process.pid)
        entered("", "new", pid=process.pid, started=started)
        assert living() == ["new"]
    finally:
        process.kill()
        process.wait()
    assert living() == []


def test_reused_pid_is_another_process() -> None:
    """Another process with the same pid has another start time."""
    started = procfs.start_time(os.getpid())
    assert isinstance(started, int)
    entered("", "now", pid=os.getpid(), started=started)
    entered("", "before", pid=os.getpid(), started=started - 1)
    assert living() == ["now"]


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_missing_process_has_no_start_time(pid: int) -> None:
    assert procfs.start_time(pid) is None


def test_start_time_of_a_command_with_parentheses(tmp_path: Path) -> None:
    """The start time is read whatever name the process has, also with spaces."""
    odd = tmp_path / "a) 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "60"])
    try:
        found, own = procfs.start_time(process.pid), procfs.start_time(os.getpid())
        assert found is not None
        assert own is not None
        assert found >= own
    finally:
        process.kill()
        process.wait()


def test_one_id_in_two_roots_has_two_entries(tmp_path: Path) -> None:
    """Ids are unique per state root only; a new entry replaces that of its own root."""
    for name in ("a", "b"):
        (tmp_path / name / "x").mkdir(parents=True)
        entered(str(tmp_path / name), "x", bundle=name)
    entered(str(tmp_path / "a"), "x", bundle="again")
    assert [entry["bundle"] for entry in ledger.living()] == ["b", "again"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        '{"schema": "another/v1", "id": "x", "root": "", "since": 1}',
        '{"schema": "gpuhook/ledger/v1", "id": 7, "root": "", "since": 1}',
        '{"schema": "gpuhook/ledger/v1", "id": "x", "since": 1}',
        '{"schema": "gpuhook/ledger/v1", "id": "x", "root": "", "since": "now"}',
        " " * (2 << 20),
        '{"schema": "gpuhook/ledger/v1", "id": "x", "root": "/a\\u0000", "since": 1}',
        '{"schema": "gpuhook/ledger/v1", "id": "x\\ud800", "root": "/a", "since": 1}',
    ],
    ids=["empty", "text", "list", "schema", "id", "root", "since", "huge", "nul", "surrogate"],
)
def test_malformed_files_are_ignored_and_kept(content: str, root: str, entries: Path) -> None:
    entered(root, "here")
    (entries / "00000000-x.json").write_text(content)
    (entries / "README").write_text("hello")
    (entries / "directory.json").mkdir()
    assert living() == ["here"]
    assert len(os.listdir(entries)) == 4


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_writable_entries_are_ignored(mode: int, root: str, entries: Path) -> None:
    """An entry that another user can write is not trusted."""
    entered(root, "here")
    (file,) = entries.iterdir()
    file.chmod(mode)
    assert living() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_entries_of_other_users_are_ignored(root: str, entries: Path) -> None:
    """An entry of another user, or a link to a good one, is not trusted."""
    entered(root, "here")
    (file,) = entries.iterdir()
    target = entries.parent / "elsewhere"
    file.rename(target)
    file.symlink_to(target)
    assert living() == []
    file.unlink()
    target.rename(file)
    assert living() == ["here"]
    os.chown(file, 1000, 1000)
    assert living() == []


def test_many_dead_entries_are_removed(root: str, entries: Path) -> None:
    """Creates keep the directory small, though gpuhook does not see deletes."""
    for number in range(575):
        (entries if number else Path(ledger.directory())).mkdir(parents=True, exist_ok=True)
        entry = {"schema": ledger.SCHEMA, "id": f"dead-{number}", "root": root, "since": number}
        (entries / f"{number:08x}-dead.json").write_text(json.dumps(entry))
        os.chmod(entries / f"{number:08x}-dead.json", 0o644)
    entered(root, "here")
    assert len(os.listdir(entries)) == 1


def test_directory_of_an_older_release_gets_its_mode(root: str, entries: Path) -> None:
    """Older releases let every user of the node read the names of pods."""
    entries.mkdir(parents=True)
    entries.chmod(0o755)
    ledger.record(root, "c1", {})
    assert stat.S_IMODE(entries.stat().st_mode) == 0o700


def test_modes_do_not_depend_on_the_umask(root: str, entries: Path) -> None:
    """Only the owner can read an entry and list the directory: entries name pods."""
    old = os.umask(0)
    try:
        entered(root, "here")
    finally:
        os.umask(old)
    (file,) = entries.iterdir()
    assert file.stat().st_mode & 0o7777 == 0o600
    assert entries.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("a", True),
        ("A-z_0.9+x", True),
        ("x" * 255, True),
        ("x" * 256, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a b", False),
        ("a\n", False),
        ("é", False),
    ],
)
def test_valid_ids(text: str, is_id: bool) -> None:
    """An id is what runc and crun accept; its file cannot be outside the directory."""
    assert ledger.is_id(text) is is_id


def test_longest_ids(tmp_path: Path) -> None:
    """The longest id fits into a file name, and one with the same beginning has its own file."""
    ids = ["x" * 255, "x" * 254 + "y", "x" * 200, "x" * 201]
    for identity in ids:
        (tmp_path / identity).mkdir()
        entered(str(tmp_path), identity)
    assert sorted(living()) == sorted(ids)


def test_entry_is_found_by_root_and_id(root: str, tmp_path: Path) -> None:
    """An entry whose container is gone is not found."""
    entered(root, "here", pod="p")
    entered(root, "gone")
    entry = ledger_changes.find_entry(root, "here")
    assert entry is not None
    assert entry["pod"] == "p"
    assert ledger_changes.find_entry(root, "gone") is None
    assert ledger_changes.find_entry(str(tmp_path), "here") is None


@pytest.fixture
def sleeper() -> Iterator[tuple[int, int]]:
    """Give the pid and start time of a process that stands for a container's first process."""
    process = subprocess.Popen(["sleep", "60"])
    started = procfs.start_time(process.pid)
    assert started is not None
    yield process.pid, started
    process.kill()
    process.wait()


def test_links_between_directories_are_resolved(sleeper: tuple[int, int]) -> None:
    """Engines use /var/run for /run."""
    pid, started = sleeper
    ledger.record("/var/run/gpuhook-tests", "x", {"pid": pid, "started": started})
    assert ledger_changes.find_entry("/run/gpuhook-tests", "x") is not None


def test_entry_without_a_state_root(root: str, sleeper: tuple[int, int]) -> None:
    """The hook's entry applies to a container whose first process it names."""
    pid, started = sleeper
    ledger.record("", "here", {"pid": pid, "started": started, "route": "cdi"})
    entry = ledger_changes.find_entry(root, "here", pid)
    assert entry is not None
    assert entry["route"] == "cdi"
    assert ledger_changes.find_entry(root, "here", pid + 1) is None
    assert ledger_changes.find_entry(root, "here") is None
    ledger_changes.update(root, "here", sleeper, lambda entry: {**entry, "live": ["x"]})
    assert [(e["root"], e["live"]) for e in ledger.living()] == [("", ["x"])]


def test_live_changes_are_added_to_the_entry(root: str, sleeper: tuple[int, int]) -> None:
    """The data of the create is kept; a change to None removes the entry."""
    entered(root, "here", devices=["nvidia.com/gpu=0"])
    ledger_changes.update(root, "here", sleeper, lambda entry: {**entry, "live": [{"device": "1"}]})
    entry = ledger_changes.find_entry(root, "here")
    assert entry is not None
    assert (entry["devices"], entry["live"]) == (["nvidia.com/gpu=0"], [{"device": "1"}])
    assert entry["init"] == list(sleeper)
    ledger_changes.update(root, "here", sleeper, lambda _: None)
    assert ledger_changes.find_entry(root, "here") is None


def test_live_change_of_a_container_without_an_entry(root: str, sleeper: tuple[int, int]) -> None:
    """The first change makes an entry, which ends with the process."""
    given = {"route": "attach", "live": {"edits": {}}}
    ledger_changes.update(root, "here", sleeper, lambda entry: {**entry, **given})
    (entry,) = ledger.living()
    assert (entry["id"], entry["root"], entry["route"]) == ("here", root, "attach")
    assert isinstance(entry["since"], float)
    ledger_changes.update(root, "here", sleeper, lambda _: None)
    assert ledger.living() == []


def test_live_entry_ends_with_a_restart(root: str, sleeper: tuple[int, int]) -> None:
    """An entry that only `attach` made does not apply to a restarted container."""
    gone = (sleeper[0], sleeper[1] - 1)
    given = {"route": "attach", "live": {"edits": {}}, "devices": ["nvidia.com/gpu=0"]}
    ledger_changes.update(root, "here", gone, lambda entry: {**entry, **given})
    assert ledger.living() == []


def test_live_changes_of_an_earlier_run_are_ignored(root: str, sleeper: tuple[int, int]) -> None:
    """They do not apply to the container that runs now."""
    entered(root, "here", devices=["nvidia.com/gpu=0"])
    gone = (sleeper[0], sleeper[1] - 1)
    done = {"live": [{"device": "1"}], "withdrawn": ["nvidia.com/gpu=0"]}
    ledger_changes.update(root, "here", gone, lambda entry: {**entry, **done})
    (entry,) = ledger.living()
    assert entry["devices"] == ["nvidia.com/gpu=0"]
    assert not {"init", "live", "withdrawn"} & set(entry)


def test_concurrent_updates_are_all_kept(
    root: str, sleeper: tuple[int, int], entries: Path
) -> None:
    """None of them undoes what another has written."""
    code = (
        "import sys; from gpuhook.containers.warm import ledger_changes\n"
        "n = sys.argv[2]\n"
        "ledger_changes.update(sys.argv[1], 'here', (int(sys.argv[3]), int(sys.argv[4])),"
        " lambda e: {**e, 'live': [*e.get('live', []), n]})"
    )
    words = [sys.executable, "-c", code, root]
    numbers = [str(n) for n in sleeper]
    running = [subprocess.Popen([*words, str(n), *numbers]) for n in range(12)]
    assert [process.wait() for process in running] == [0] * 12
    (entry,) = ledger.living()
    assert sorted(entry["live"], key=int) == [str(n) for n in range(12)]
    assert len(os.listdir(entries)) == 1


def test_changes_of_one_container_are_exclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of other containers need not wait."""
    monkeypatch.setattr(ledger_changes, "_TIMEOUT", 0)
    with ledger_changes.Changing("x"):
        with ledger_changes.Changing("y"):
            pass
        with pytest.raises(GpuhookError, match="for 30 seconds") as raised:
            ledger_changes.Changing("x").__enter__()
    assert raised.value.code == "GH1757"
    assert Path(raised.value.hint.split("`")[1].split()[1]).exists()
    with ledger_changes.Changing("x"):
        pass


def test_locks_are_not_entries(root: str, sleeper: tuple[int, int], entries: Path) -> None:
    """Creates count the files in the directory of the entries."""
    entered(root, "here")
    for number in range(300):
        with ledger_changes.Changing(str(number)):
            pass
    ledger_changes.update(root, "here", sleeper, lambda entry: entry)
    assert len(os.listdir(entries)) == 1


YEAR = 365 * 86400
CONTAINERD = {
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-name": "train-0",
    "io.kubernetes.cri.sandbox-namespace": "ml",
}
CRIO = {
    "io.kubernetes.cri-o.Name": "k8s_main_train-0_ml_0",
    "io.kubernetes.container.name": "main",
    "io.kubernetes.pod.name": "train-0",
    "io.kubernetes.pod.namespace": "ml",
}


@pytest.mark.parametrize("annotations", [CONTAINERD, CRIO], ids=["containerd", "cri-o"])
def test_pod_of_annotations(annotations: dict[str, str]) -> None:
    """Pod, namespace and container are read from the annotations of both engines."""
    told = {"pod": "train-0", "namespace": "ml", "container": "main"}
    assert ledger.pod_of(annotations) == told


@pytest.mark.parametrize("annotations", [None, [], "x", {}, {"io.kubernetes.pod.name": 7}])
def test_no_pod_in_other_annotations(annotations: object) -> None:
    """Malformed ones are ignored."""
    assert ledger.pod_of(annotations) == {}


def test_too_large_entry_is_refused(root: str, entries: Path) -> None:
    """The entry before it remains."""
    entered(root, "here")
    (before,) = [path.read_bytes() for path in entries.iterdir()]
    with pytest.raises(OSError, match="File too large"):
        entered(root, "here", live="x" * (1 << 20))
    assert [path.read_bytes() for path in entries.iterdir()] == [before]


def test_warnings_are_bounded_and_printable(root: str) -> None:
    """When they are written, and when a file has other ones."""
    many = [GpuhookError("GH1007", f"{n} \x1b[2J\n" + "x" * 5000, "") for n in range(100)]
    entered(root, "here", warnings=ledger_warnings.records(many))
    (entry,) = ledger.living()
    found = ledger_warnings.read(entry)
    assert found == entry["warnings"]
    assert len(found) == 16
    assert all(one["message"].isprintable() and len(one["message"]) < 1100 for one in found)
    hostile = {"code": "GH1\x1b[2J" + "9" * 50, "message": "a\nb\u202e"}
    for value, count in (
        ([hostile, {"code": 1, "message": "x"}, {"code": "GH1"}, None, "GH1"], 1),
        ({"code": "GH1", "message": "x"}, 0),
        ("GH1", 0),
        (None, 0),
    ):
        found = ledger_warnings.read({"warnings": value})
        assert len(found) == count
        assert all(text.isprintable() for one in found for text in one.values())


def test_warnings_are_added_once(root: str) -> None:
    """To the entry of this id and bundle; without an entry, a new one is made."""
    first, second = (GpuhookError(f"GH100{n}", f"number {n}", "") for n in (7, 8))
    entered(root, "here", bundle="/b", route="wrapper", warnings=ledger_warnings.records([first]))
    ledger_changes.add_warnings("here", "/other", [second])
    assert ledger_warnings.read(ledger.living()[0]) == ledger_warnings.records([first])
    for bundle in ("/b", "/"):  # crun 1.8 does not always report it
        ledger_changes.add_warnings("here", bundle, [first, second])
        (entry,) = ledger.living()
        assert ledger_warnings.read(entry) == ledger_warnings.records([first, second])
        assert ledger.is_holder(entry)
    own = {"pid": os.getpid(), "started": procfs.start_time(os.getpid()), "route": ""}
    ledger_changes.add_warnings("new", "/n", [second], {**own, "bundle": "/n"})
    added = ledger.living()[1]
    assert (added["id"], ledger.is_holder(added)) == ("new", False)
    assert ledger_warnings.read(added) == ledger_warnings.records([second])


def test_ids_with_one_file_name_are_distinguished(root: str) -> None:
    """Ids above 200 characters are cut and get a checksum, which two of them may share."""
    chosen, known = random.Random(1), dict[str, str]()
    path = one = ""
    while path not in known or known[path] == one:
        known[path] = one
        one = f"{'x' * 191}{chosen.getrandbits(128):032x}"
        path = ledger.path_of(root, one)
    other = known[path]
    os.mkdir(f"{root}/{one}")
    entered(root, one)
    assert ledger_changes.find_entry(root, one) is not None
    assert ledger_changes.find_entry(root, other) is None
