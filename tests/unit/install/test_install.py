# SPDX-License-Identifier: Apache-2.0
"""Installed trees on a host: versions, the link to the current one, and versions that are kept."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import NO_CHROOT, HostPrograms, Ran
from gpuhook.errors import GpuhookError
from gpuhook.install import (
    container_directories,
    installation,
    mounted_host,
    runtime_tree,
    tree_copy,
    version_references,
)
from gpuhook.install.installation import InstallPlace

REQUIRE_RUNNING = installation._require_running  # replaced by a fixture
BUNDLE = "run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/config.json"
Trees = Callable[[str], runtime_tree.RuntimeTree]


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the test run of the installed programs: these trees have none, unlike the
    contract tests.
    """
    monkeypatch.setattr(installation, "_require_running", lambda where, version: None)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    (made / "etc").mkdir(parents=True)
    return made


@pytest.fixture
def tree_of(tmp_path: Path) -> Trees:
    """Return a function that makes a small tree of a version."""

    def made(version: str) -> runtime_tree.RuntimeTree:
        place = tmp_path / f"tree-{version}"
        for name in ("bin", "lib/gpuhook", "lib/plugin", "launchers/bin", "launchers/libexec"):
            (place / name).mkdir(parents=True)
        (place / "bin/of-the-image").touch()
        (place / "lib/plugin/grpc").touch()
        (place / "lib/gpuhook/module").write_text(version, encoding="utf-8")
        hook = "#!@TREE@/libexec/python3\n@LIB@ @BIN@\n"
        (place / "launchers/bin/gpuhook-hook").write_text(hook, encoding="utf-8")
        (place / "launchers/bin/gpuhook").write_text("@TREE@ @BIN@\n", encoding="utf-8")
        (place / "launchers/libexec/config-manager").write_text("@TREE@\n", encoding="utf-8")
        described = {"schema": runtime_tree.SCHEMA, "version": version, "digest": version[0] * 64}
        (place / "tree.json").write_text(json.dumps(described), encoding="utf-8")
        return runtime_tree.read_tree(str(place))

    return made


@pytest.fixture
def place(node: Path) -> InstallPlace:
    return installation.place(str(node))


def put(place: InstallPlace, found: runtime_tree.RuntimeTree) -> list[str]:
    """Install a tree only, and return the remaining versions."""
    done = installation.install(place, found, (), None)  # type: ignore[arg-type] # no engine
    return [done.version, *done.kept]


def test_launchers_have_the_installed_paths(place: InstallPlace, tree_of: Trees) -> None:
    """A hook has the path of its version; other programs that of all versions."""
    put(place, tree_of("1.0"))
    here = Path(place.here)
    version = "/opt/gpuhook/versions/1.0-111111111111"
    hook = (here / "bin/gpuhook-hook").read_text(encoding="utf-8")
    assert hook == f"#!{version}/libexec/python3\n{version}/lib/gpuhook {version}/bin\n"
    assert (here / "bin/gpuhook").read_text(encoding="utf-8") == f"{version} /opt/gpuhook/bin\n"
    assert os.access(here / "bin/gpuhook-hook", os.X_OK)
    assert os.readlink(here / "bin") == "current/bin"


def test_files_for_the_image_alone_are_not_installed(place: InstallPlace, tree_of: Trees) -> None:
    put(place, tree_of("1.0"))
    current = Path(place.here, "current")
    assert not (current / "lib/plugin").exists()
    assert not (current / "bin/of-the-image").exists()
    assert not (current / "libexec/config-manager").exists()
    assert (current / "lib/gpuhook/module").read_text(encoding="utf-8") == "1.0"


def test_second_run_writes_nothing(place: InstallPlace, tree_of: Trees) -> None:
    found = tree_of("1.0")
    put(place, found)
    before = {p: p.lstat().st_ctime_ns for p in Path(place.here).rglob("*")}
    again = installation.install(place, found, (), None)  # type: ignore[arg-type] # no engine
    assert not again.has_changed
    assert {p: p.lstat().st_ctime_ns for p in Path(place.here).rglob("*")} == before


def test_dry_run_writes_nothing(place: InstallPlace, node: Path, tree_of: Trees) -> None:
    found = tree_of("1.0")
    told = installation.install(place, found, (), None, is_dry=True)  # type: ignore[arg-type]
    assert told.is_new
    assert not (node / "opt").exists()


def test_upgrade_keeps_the_previous_version(place: InstallPlace, tree_of: Trees) -> None:
    """It was the current version until now, and may be running."""
    put(place, tree_of("1.0"))
    assert put(place, tree_of("2.0")) == ["2.0-222222222222", "1.0-111111111111"]
    assert put(place, tree_of("3.0")) == ["3.0-333333333333", "2.0-222222222222"]
    assert (Path(place.here) / "bin/../lib/gpuhook/module").read_text(encoding="utf-8") == "3.0"


def test_downgrade_to_the_previous_version(place: InstallPlace, tree_of: Trees) -> None:
    first, second = tree_of("1.0"), tree_of("2.0")
    put(place, first)
    put(place, second)
    assert put(place, first) == ["1.0-111111111111", "2.0-222222222222"]
    assert tree_copy.current_version(place.here) == first.name


@pytest.fixture
def container_of_1_0(place: InstallPlace, node: Path, tree_of: Trees) -> Path:
    """Yield the files of a container whose hook has version 1.0, before two upgrades."""
    put(place, tree_of("1.0"))
    bundle = node / BUNDLE
    bundle.parent.mkdir(parents=True)
    path = "/opt/gpuhook/versions/1.0-111111111111/bin/gpuhook-hook"
    bundle.write_text(json.dumps({"hooks": {"poststop": [{"path": path}]}}), encoding="utf-8")
    return bundle


def test_version_of_a_container_is_kept(
    place: InstallPlace, container_of_1_0: Path, tree_of: Trees
) -> None:
    put(place, tree_of("2.0"))
    assert "1.0-111111111111" in put(place, tree_of("3.0"))
    container_of_1_0.unlink()
    assert put(place, tree_of("4.0")) == ["4.0-444444444444", "3.0-333333333333"]


def test_uninstall_keeps_the_version_of_a_container(
    place: InstallPlace, node: Path, container_of_1_0: Path, tree_of: Trees
) -> None:
    """The other versions are removed; once the container is removed, so is its version."""
    put(place, tree_of("2.0"))
    assert installation.uninstall(place).kept == ("1.0-111111111111",)
    assert os.listdir(node / "opt/gpuhook/versions") == ["1.0-111111111111"]
    container_of_1_0.unlink()
    assert installation.uninstall(place).kept == ()
    assert not (node / "opt/gpuhook").exists()
    assert not installation.uninstall(place).is_new


def test_interrupted_copy_is_repeated(place: InstallPlace, tree_of: Trees) -> None:
    """An incomplete version has another name, and is never used."""
    found = tree_of("1.0")
    draft = Path(place.here, "versions", f".{found.name}.new")
    draft.mkdir(parents=True)
    (draft / "half").touch()
    half = Path(place.here, "versions", found.name)
    half.mkdir()
    put(place, found)
    assert (half / "tree.json").is_file()
    assert not draft.exists()


def test_tree_that_the_host_cannot_run_is_not_installed(
    place: InstallPlace, tree_of: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, tree_of("1.0"))

    def refuse(where: InstallPlace, version: str) -> None:
        raise PermissionError

    monkeypatch.setattr(installation, "_require_running", refuse)
    with pytest.raises(GpuhookError):
        put(place, tree_of("2.0"))
    assert tree_copy.current_version(place.here) == "1.0-111111111111"
    assert tree_copy.versions(place.here) == ["1.0-111111111111"]


def test_concurrent_runs_make_one_installation(place: InstallPlace, tree_of: Trees) -> None:
    found = tree_of("1.0")
    failed: list[BaseException] = []

    def work() -> None:
        try:
            put(place, found)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert tree_copy.versions(place.here) == [found.name]


@pytest.mark.parametrize("name", ["current", "bin", "versions"])
def test_files_of_others_are_not_replaced(place: InstallPlace, tree_of: Trees, name: str) -> None:
    theirs = Path(place.here, name)
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    with pytest.raises(GpuhookError) as caught:
        put(place, tree_of("1.0"))
    assert caught.value.code == "GH2104"
    assert os.listdir(place.here) == [name]


def test_link_to_another_directory_is_not_followed(
    place: InstallPlace, tree_of: Trees, tmp_path: Path
) -> None:
    """An absolute link would lead to this container's directory, not the host's."""
    (tmp_path / "ours").mkdir()
    Path(place.here).mkdir(parents=True)
    Path(place.here, "versions").symlink_to(tmp_path / "ours")
    with pytest.raises(GpuhookError) as caught:
        put(place, tree_of("1.0"))
    assert caught.value.code == "GH2104"
    assert not os.listdir(tmp_path / "ours")


def test_files_of_others_among_the_versions_are_kept(place: InstallPlace, tree_of: Trees) -> None:
    put(place, tree_of("1.0"))
    versions = Path(place.here, "versions")
    (versions / "lost+found").mkdir()
    (versions / "notes").touch()
    (versions / "link").symlink_to("1.0-111111111111")
    put(place, tree_of("2.0"))
    put(place, tree_of("3.0"))
    installation.uninstall(place)
    assert {path.name for path in versions.iterdir()} == {"lost+found", "notes", "link"}


@pytest.mark.parametrize("name", ["/opt/1.0-111111111111", "1.0-111111111111", ""])
def test_wrong_link_is_fixed(place: InstallPlace, tree_of: Trees, name: str) -> None:
    found = tree_of("1.0")
    put(place, found)
    for link in ("current", "bin"):
        Path(place.here, link).unlink()
        Path(place.here, link).symlink_to(name or "nowhere")
    put(place, found)
    assert os.readlink(Path(place.here, "current")) == f"versions/{found.name}"
    assert os.readlink(Path(place.here, "bin")) == "current/bin"


@pytest.mark.parametrize(
    ("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o755, 1000)], ids=["all", "sticky", "theirs"]
)
def test_directory_of_another_user_is_refused(
    place: InstallPlace, tree_of: Trees, mode: int, owner: int
) -> None:
    """Root would run programs of other users."""
    Path(place.here).mkdir(parents=True)
    Path(place.here).chmod(mode)
    os.chown(place.here, owner, owner)
    with pytest.raises(GpuhookError) as caught:
        put(place, tree_of("1.0"))
    assert caught.value.code == "GH2102"
    assert "users other than root" in caught.value.message
    assert not os.listdir(place.here)


@pytest.mark.parametrize(("mode", "is_taken"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_directory_below_that_of_another_user_is_refused(
    place: InstallPlace, node: Path, tree_of: Trees, mode: int, *, is_taken: bool
) -> None:
    """The user could replace the directory; the sticky bit prevents that."""
    Path(place.here).mkdir(parents=True)
    (node / "opt").chmod(mode)
    if is_taken:
        put(place, tree_of("1.0"))
        return
    with pytest.raises(GpuhookError) as caught:
        put(place, tree_of("1.0"))
    assert caught.value.code == "GH2102"
    assert f"can write to {node / 'opt'}," in caught.value.message


def test_full_disk_leaves_no_file(place: InstallPlace, node: Path, tree_of: Trees) -> None:
    found = tree_of("1.0")
    (Path(found.path) / "large").write_bytes(bytes(1 << 20))
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(node / "opt")]
    (node / "opt").mkdir()
    subprocess.run(words, check=True)
    try:
        with pytest.raises(GpuhookError) as caught:
            put(place, found)
        assert os.listdir(node / "opt") == []
    finally:
        subprocess.run(["umount", str(node / "opt")], check=True)
    assert caught.value.code == "GH2102"
    assert "No space left" in caught.value.message
    assert "large" in caught.value.message


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process that is killed at its `step`th change of files; False if it
    has fewer.
    """
    pid = os.fork()
    if pid == 0:
        left = iter(range(step))

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*words: object, **more: object) -> object:
                if next(left, None) is None:
                    os._exit(9)
                return real(*words, **more)

            return call

        for name in ("mkdir", "chmod", "symlink", "rename", "unlink", "utime", "rmdir"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return {9: True, 0: False}[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]


def all_in(place: InstallPlace) -> set[str]:
    here = Path(place.here)
    return {str(path.relative_to(here)) for path in here.rglob("*")}


def test_kill_at_any_step_is_fixed_by_the_next_run(place: InstallPlace, tree_of: Trees) -> None:
    """The current version is complete, or there is none; the next run finishes."""
    old, new = tree_of("1.0"), tree_of("2.0")
    put(place, old)
    put(place, new)
    expected = all_in(place)
    step = 0
    is_killed = True
    while is_killed:
        installation.uninstall(place, forced=True)
        put(place, old)
        is_killed = killed_at(step, lambda: put(place, new))
        assert tree_copy.current_version(place.here) in {old.name, new.name}
        put(place, new)
        assert all_in(place) == expected
        step += 1
    assert step > 15


def test_kill_during_uninstall_is_fixed_by_the_next_run(
    place: InstallPlace, node: Path, tree_of: Trees
) -> None:
    found = tree_of("1.0")
    step = 0
    is_killed = True
    while is_killed:
        put(place, found)
        is_killed = killed_at(step, lambda: installation.uninstall(place))
        installation.uninstall(place)
        assert os.listdir(node / "opt") == []
        step += 1
    assert step > 10


def test_lock_file_that_was_removed_is_locked_again(place: InstallPlace) -> None:
    """A run that waits for a removed installation locks the next one."""
    locked, done = threading.Event(), threading.Event()
    container_of_1_0: list[int] = []

    def second() -> None:
        locked.wait()
        with tree_copy.locked(place.here):
            container_of_1_0.append(os.stat(Path(place.here, ".lock")).st_ino)
        done.set()

    thread = threading.Thread(target=second)
    thread.start()
    with tree_copy.locked(place.here):
        locked.set()
        Path(place.here, ".lock").unlink()
    assert done.wait(10)
    thread.join()
    assert container_of_1_0


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_everyone_can_run_it_and_only_root_can_change_it(
    place: InstallPlace, tree_of: Trees, umask: int
) -> None:
    found = tree_of("1.0")
    Path(found.path, "lib/gpuhook/module").chmod(0o666)
    Path(found.path, "lib").chmod(0o777)
    os.setxattr(Path(found.path, "lib"), "user.label", b"of a container")
    before = os.umask(umask)
    try:
        put(place, found)
    finally:
        os.umask(before)
    modes = {
        stat.S_IMODE(path.lstat().st_mode)
        for path in [Path(place.here), *Path(place.here).rglob("*")]
        if not path.is_symlink()
    }
    assert modes == {0o755, 0o644, 0o600} - (
        {0o600} if not Path(place.here, ".lock").exists() else set()
    )
    assert not os.listxattr(Path(place.here, "current/lib"))


def test_program_that_stops_a_running_container_is_kept(
    place: InstallPlace, node: Path, tree_of: Trees
) -> None:
    """containerd's shim calls the runtime by its path for exec, kill and delete."""
    put(place, tree_of("1.0"))
    runtime = node / BUNDLE.replace("config.json", "runtime")
    runtime.parent.mkdir(parents=True)
    runtime.write_text("/opt/gpuhook/bin/gpuhook-runtime", encoding="utf-8")
    assert installation.uninstall(place).kept == ("1.0-111111111111",)
    assert Path(place.here, "bin/gpuhook-hook").is_file()
    runtime.unlink()
    assert installation.uninstall(place).kept == ()
    assert not (node / "opt/gpuhook").exists()


def test_pipe_in_place_of_a_container_file_does_not_block(
    place: InstallPlace, node: Path, tree_of: Trees
) -> None:
    put(place, tree_of("1.0"))
    (node / BUNDLE).parent.mkdir(parents=True)
    os.mkfifo(node / BUNDLE)
    assert installation.uninstall(place).kept == ()


def test_unreadable_container_file_keeps_all_versions(
    place: InstallPlace, node: Path, tree_of: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name any version."""
    monkeypatch.setattr(version_references, "_MAX", 8)
    (node / BUNDLE).parent.mkdir(parents=True)
    (node / BUNDLE).write_text("{'a': 'file that is too large'}", encoding="utf-8")
    for version in ("1.0", "1.1", "1.2"):
        put(place, tree_of(version))
    assert len(tree_copy.versions(place.here)) == 3
    assert len(installation.uninstall(place).kept) == 3
    assert installation.uninstall(place, forced=True).kept == ()


@pytest.mark.parametrize(
    ("link", "target", "real"),
    [
        ("opt", "/var/opt", "var/opt/gpuhook"),
        ("opt", "../../../var/opt", "var/opt/gpuhook"),
        ("opt", "var/./lib/../opt", "var/opt/gpuhook"),
    ],
)
def test_links_are_resolved_on_the_host(node: Path, link: str, target: str, real: str) -> None:
    """/opt is a link to /var/opt on image-based systems; no link leads out of the host."""
    (node / "var/opt").mkdir(parents=True)
    (node / link).symlink_to(target)
    assert mounted_host.inside(str(node), "/opt/gpuhook") == str(node / real)


def test_circular_links_are_a_fault(node: Path) -> None:
    (node / "opt").symlink_to("opt")
    with pytest.raises(OSError, match="symbolic links"):
        mounted_host.inside(str(node), "/opt/gpuhook")


def test_empty_directory_is_not_a_host(tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        installation.place(str(tmp_path))
    assert caught.value.code == "GH2100"


@pytest.mark.parametrize("path", ["opt/gpuhook", "/opt/a b", '/opt/"', "/opt/" + "a" * 110])
def test_path_that_a_launcher_cannot_have_is_refused(node: Path, path: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        installation.place(str(node), path)
    assert caught.value.code == "GH2102"


def test_longest_version_fits_into_a_shebang() -> None:
    """The default directory leaves space for the name of any version."""
    runtime_tree.require_launcher_path(f"{installation.DIRECTORY}/versions/100.200.300-{'a' * 12}")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"schema": "gpuhook/tree/v2"}', '{"schema": "gpuhook/tree/v1"}'],
)
def test_directory_without_a_tree_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tree.json").write_text(text, encoding="utf-8")
    with pytest.raises(GpuhookError) as caught:
        runtime_tree.read_tree(str(tmp_path))
    assert caught.value.code == "GH2101"


@pytest.mark.parametrize("version", ["../x", "1/2", "", "a b"])
def test_version_must_be_a_valid_name(tmp_path: Path, version: str) -> None:
    document = {"schema": runtime_tree.SCHEMA, "version": version, "digest": "a" * 64}
    (tmp_path / "tree.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(GpuhookError):
        runtime_tree.read_tree(str(tmp_path))


@pytest.mark.parametrize(
    "place", [f"{one.path}/{file}" for one in container_directories.USUAL for file in one.files]
)
def test_container_files_of_every_engine_are_read(node: Path, place: str) -> None:
    path = node / place.replace("*", "x").lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text('"/opt/gpuhook/versions/9.9-abc/bin/gpuhook-hook"', encoding="utf-8")
    where = container_directories.locate(Host(str(node)), {}, "/opt/gpuhook")
    assert version_references.version_references(str(node), "/opt/gpuhook", where).versions == {
        "9.9-abc"
    }
    assert (
        version_references.version_references(str(node), "/opt/other", where)
        == version_references.VersionReferences()
    )


@pytest.mark.parametrize(
    ("ran", "is_refused"),
    [
        (None, True),
        (Ran("", 0, "1.0\n", ""), False),
        (Ran("", 126, "", "sh: python3: Exec format error\n"), True),
        (Ran("", 127, "", "No such file or directory", is_started=False), True),
        (Ran("", NO_CHROOT, "", "Exception in preexec_fn", is_started=False), False),
    ],
    ids=["not executable", "runs", "of another architecture", "no interpreter", "no chroot"],
)
def test_copy_that_the_host_cannot_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran | None, is_refused: bool
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: ran)
    place = InstallPlace(str(tmp_path))
    if not is_refused:
        REQUIRE_RUNNING(place, "1.0")
        return
    with pytest.raises(GpuhookError) as caught:
        REQUIRE_RUNNING(place, "1.0")
    assert caught.value.code == "GH2105"
