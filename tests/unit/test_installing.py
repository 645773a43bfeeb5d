# SPDX-License-Identifier: Apache-2.0
"""A runtime tree on a host: versions, the link to the one that is used, what is never removed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.installing import copying, engine_choice, host, installation, launchers, named, tree
from gpuhook.installing.installation import Place

BUNDLE = "run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/config.json"
Trees = Callable[[str], tree.Tree]


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try no program: the trees in here have none that runs (the contract tests have)."""
    monkeypatch.setattr(installation, "_require_running", lambda where: None)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    (made / "etc").mkdir(parents=True)
    return made


@pytest.fixture
def tree_of(tmp_path: Path) -> Trees:
    """Return a function that makes a small tree of a version."""

    def made(version: str) -> tree.Tree:
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
        described = {"schema": tree.SCHEMA, "version": version, "digest": version[0] * 64}
        (place / "tree.json").write_text(json.dumps(described), encoding="utf-8")
        return tree.at(str(place))

    return made


@pytest.fixture
def place(node: Path) -> Place:
    return installation.place(str(node))


def put(place: Place, found: tree.Tree) -> list[str]:
    """Install a tree and nothing else; returns the versions that are left."""
    done = installation.install(place, found, (), None)  # type: ignore[arg-type] # no engine
    return [done.version, *done.kept]


def test_launchers_say_where_they_are(place: Place, tree_of: Trees) -> None:
    """A hook stays with its version; what others call `gpuhook` has the path that outlives it."""
    put(place, tree_of("1.0"))
    here = Path(place.here)
    version = "/opt/gpuhook/versions/1.0-111111111111"
    hook = (here / "bin/gpuhook-hook").read_text(encoding="utf-8")
    assert hook == f"#!{version}/libexec/python3\n{version}/lib/gpuhook {version}/bin\n"
    assert (here / "bin/gpuhook").read_text(encoding="utf-8") == f"{version} /opt/gpuhook/bin\n"
    assert os.access(here / "bin/gpuhook-hook", os.X_OK)
    assert os.readlink(here / "bin") == "current/bin"


def test_what_only_the_image_needs_stays_in_it(place: Place, tree_of: Trees) -> None:
    put(place, tree_of("1.0"))
    current = Path(place.here, "current")
    assert not (current / "lib/plugin").exists()
    assert not (current / "bin/of-the-image").exists()
    assert not (current / "libexec/config-manager").exists()
    assert (current / "lib/gpuhook/module").read_text(encoding="utf-8") == "1.0"


def test_a_second_time_nothing_is_written(place: Place, tree_of: Trees) -> None:
    found = tree_of("1.0")
    put(place, found)
    before = {p: p.lstat().st_ctime_ns for p in Path(place.here).rglob("*")}
    again = installation.install(place, found, (), None)  # type: ignore[arg-type] # no engine
    assert not again.has_changed
    assert {p: p.lstat().st_ctime_ns for p in Path(place.here).rglob("*")} == before


def test_a_dry_run_writes_nothing(place: Place, node: Path, tree_of: Trees) -> None:
    found = tree_of("1.0")
    told = installation.install(place, found, (), None, is_dry=True)  # type: ignore[arg-type]
    assert told.is_new
    assert not (node / "opt").exists()


def test_an_upgrade_keeps_the_version_before(place: Place, tree_of: Trees) -> None:
    """Somebody may be about to call it: it was the one in use a moment ago."""
    put(place, tree_of("1.0"))
    assert put(place, tree_of("2.0")) == ["2.0-222222222222", "1.0-111111111111"]
    assert put(place, tree_of("3.0")) == ["3.0-333333333333", "2.0-222222222222"]
    assert (Path(place.here) / "bin/../lib/gpuhook/module").read_text(encoding="utf-8") == "3.0"


def test_back_to_the_version_before(place: Place, tree_of: Trees) -> None:
    first, second = tree_of("1.0"), tree_of("2.0")
    put(place, first)
    put(place, second)
    assert put(place, first) == ["1.0-111111111111", "2.0-222222222222"]
    assert copying.used(place.here) == first.name


@pytest.fixture
def held(place: Place, node: Path, tree_of: Trees) -> Path:
    """Give the files of a container whose hook is of version 1.0, which is then upgraded twice."""
    put(place, tree_of("1.0"))
    bundle = node / BUNDLE
    bundle.parent.mkdir(parents=True)
    path = "/opt/gpuhook/versions/1.0-111111111111/bin/gpuhook-hook"
    bundle.write_text(json.dumps({"hooks": {"poststop": [{"path": path}]}}), encoding="utf-8")
    return bundle


def test_a_version_that_a_container_names_stays(place: Place, held: Path, tree_of: Trees) -> None:
    put(place, tree_of("2.0"))
    assert "1.0-111111111111" in put(place, tree_of("3.0"))
    held.unlink()
    assert put(place, tree_of("4.0")) == ["4.0-444444444444", "3.0-333333333333"]


def test_uninstalling_leaves_what_a_container_names(
    place: Place, node: Path, held: Path, tree_of: Trees
) -> None:
    """The rest goes; once the container is gone, that goes too."""
    put(place, tree_of("2.0"))
    assert installation.uninstall(place).kept == ("1.0-111111111111",)
    assert os.listdir(node / "opt/gpuhook/versions") == ["1.0-111111111111"]
    held.unlink()
    assert installation.uninstall(place).kept == ()
    assert not (node / "opt/gpuhook").exists()
    assert not installation.uninstall(place).is_new


def test_a_copy_that_was_broken_off_begins_anew(place: Place, tree_of: Trees) -> None:
    """Half a version has another name, and neither it nor its rest is ever used."""
    found = tree_of("1.0")
    draft = Path(place.here, "versions", f".{found.name}")
    draft.mkdir(parents=True)
    (draft / "half").touch()
    half = Path(place.here, "versions", found.name)
    half.mkdir()
    put(place, found)
    assert (half / "tree.json").is_file()
    assert not draft.exists()


def test_a_host_that_cannot_run_it_keeps_what_it_has(
    place: Place, tree_of: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, tree_of("1.0"))

    def refuse(where: Place) -> None:
        raise PermissionError

    monkeypatch.setattr(installation, "_require_running", refuse)
    with pytest.raises(PermissionError):
        put(place, tree_of("2.0"))
    assert copying.used(place.here) == "1.0-111111111111"


def test_two_at_once_make_one_installation(place: Place, tree_of: Trees) -> None:
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
    assert copying.versions(place.here) == [found.name]


@pytest.mark.parametrize("name", ["current", "bin"])
def test_what_is_not_ours_is_not_replaced(place: Place, tree_of: Trees, name: str) -> None:
    theirs = Path(place.here, name)
    theirs.mkdir(parents=True)
    with pytest.raises(GpuhookError) as caught:
        put(place, tree_of("1.0"))
    assert caught.value.code == "GH2104"
    assert theirs.is_dir()


@pytest.mark.parametrize(
    ("link", "target", "real"),
    [
        ("opt", "/var/opt", "var/opt/gpuhook"),
        ("opt", "../../../var/opt", "var/opt/gpuhook"),
        ("opt", "var/./lib/../opt", "var/opt/gpuhook"),
    ],
)
def test_links_are_the_hosts_own(node: Path, link: str, target: str, real: str) -> None:
    """/opt is a link to /var/opt on systems whose root is an image; none leads out of the host."""
    (node / "var/opt").mkdir(parents=True)
    (node / link).symlink_to(target)
    assert host.inside(str(node), "/opt/gpuhook") == str(node / real)


def test_a_ring_of_links_ends(node: Path) -> None:
    (node / "opt").symlink_to("opt")
    with pytest.raises(OSError, match="symbolic links"):
        host.inside(str(node), "/opt/gpuhook")


def test_an_empty_directory_is_no_host(tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        installation.place(str(tmp_path))
    assert caught.value.code == "GH2100"


@pytest.mark.parametrize("path", ["opt/gpuhook", "/opt/a b", '/opt/"', "/opt/" + "a" * 110])
def test_a_path_that_no_launcher_can_have(node: Path, path: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        installation.place(str(node), path)
    assert caught.value.code == "GH2103"


def test_the_longest_version_fits_a_first_line() -> None:
    """The default directory leaves room for the name of any version."""
    launchers.require_usable(f"{installation.DIRECTORY}/versions/100.200.300-{'a' * 12}")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"schema": "gpuhook/tree/v2"}', '{"schema": "gpuhook/tree/v1"}'],
)
def test_what_is_no_tree_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tree.json").write_text(text, encoding="utf-8")
    with pytest.raises(GpuhookError) as caught:
        tree.at(str(tmp_path))
    assert caught.value.code == "GH2101"


@pytest.mark.parametrize("version", ["../x", "1/2", "", "a b"])
def test_a_version_is_a_name(tmp_path: Path, version: str) -> None:
    document = {"schema": tree.SCHEMA, "version": version, "digest": "a" * 64}
    (tmp_path / "tree.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(GpuhookError):
        tree.at(str(tmp_path))


@pytest.mark.parametrize(
    ("sockets", "directories", "expected"),
    [
        (["run/crio/crio.sock", "run/containerd/containerd.sock"], [], "crio"),
        (["run/docker.sock", "run/containerd/containerd.sock"], [], "docker"),
        (["run/docker.sock", "run/containerd/containerd.sock"], ["var/lib/kubelet"], "containerd"),
        (["run/docker.sock", "run/cri-dockerd.sock"], ["var/lib/kubelet"], "docker"),
        (["run/k3s/containerd/containerd.sock"], [], "containerd"),
        (["run/podman/podman.sock"], [], "podman"),
    ],
)
def test_the_engine_is_the_kubelets(
    node: Path, sockets: list[str], directories: list[str], expected: str
) -> None:
    for name in sockets:
        (node / name).parent.mkdir(parents=True, exist_ok=True)
        (node / name).touch()
    for name in directories:
        (node / name).mkdir(parents=True)
    assert engine_choice.engines(str(node), "auto") == (expected,)
    assert engine_choice.engines(str(node), "none") == ()
    assert engine_choice.engines(str(node), "crio") == ("crio",)


def test_no_engine_is_told(node: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        engine_choice.engines(str(node), "auto")
    assert caught.value.code == "GH2106"


@pytest.mark.parametrize("place", named.BUNDLES)
def test_every_engines_files_are_looked_at(node: Path, place: str) -> None:
    path = node / place.replace("*", "x").lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text('"/opt/gpuhook/versions/9.9-abc/bin/gpuhook-hook"', encoding="utf-8")
    assert named.versions(str(node), "/opt/gpuhook") == {"9.9-abc"}
    assert named.versions(str(node), "/opt/other") == frozenset()
