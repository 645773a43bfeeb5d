# SPDX-License-Identifier: Apache-2.0
"""A tree of a node's files: paths are the node's own, and links stay inside."""

from __future__ import annotations

import os
import signal

import pytest

from gpuhook.node.tree_worker import PatientTree
from gpuhook.node_facts.sources import node_tree as tree_module
from gpuhook.node_facts.sources.node_tree import DirectoryTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def test_real_paths_are_those_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libcuda.so.580.95.05").touch()
    (tmp_path / "lib").symlink_to("/usr/lib")
    (tmp_path / "usr/lib/libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    tree = DirectoryTree(str(tmp_path))
    assert tree.real("/") == "/"
    assert tree.real("/lib") == "/usr/lib"
    assert tree.real("/lib/libcuda.so.1") == "/usr/lib/libcuda.so.580.95.05"
    assert tree.real("/lib/libcuda.so.2") is None


def test_real_paths_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert DirectoryTree("/").real(str(tmp_path / "link")) == str(tmp_path.resolve())
    assert DirectoryTree("/").real("/") == "/"


@pytest.mark.parametrize("tree", [DirectoryTree, PatientTree])
def test_only_regular_files_are_opened(
    tmp_path: Path, tree: type[DirectoryTree | PatientTree]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "masked").symlink_to("/null")
    (tmp_path / "socket").symlink_to("fifo")
    (tmp_path / "directory").mkdir()
    node = tree(str(tmp_path))
    for path in ("/fifo", "/socket"):
        with pytest.raises(OSError, match="not a regular file") as raised:
            node.read(path)
        assert raised.value.filename == path
    assert node.read("/directory") is None
    assert node.read("/masked") is None
    assert tree("/").read("/dev/null") == b""
    with pytest.raises(OSError, match="not a regular file"):
        tree("/").read("/dev/zero")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes another user's file")
def test_file_is_read_with_the_permissions_of_its_owner(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's", encoding="utf-8")
    (tmp_path / "link").symlink_to("secret")
    tree = PatientTree(str(tmp_path))
    assert tree.read("/link", owner=0) == b"root's"
    with pytest.raises(OSError, match="another user"):
        tree.read("/link", owner=1000)


def test_directory_with_too_many_names_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "MOST_NAMES", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(OSError, match="more than"):
        DirectoryTree(str(tmp_path)).names("/")


def test_unresponsive_file_system_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dead").mkdir()
    for name in ("dead/one", "dead/two", "three"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    read = DirectoryTree.read

    def hanging(self: DirectoryTree, path: str, limit: int, *, owner: int | None) -> bytes | None:
        if path.startswith("/dead"):
            signal.pause()
        return read(self, path, limit, owner=owner)

    monkeypatch.setattr(DirectoryTree, "read", hanging)
    tree = PatientTree(str(tmp_path), patience=0.5)
    for name in ("/dead/one", "/dead/two"):
        with pytest.raises(TimeoutError, match="does not answer"):
            tree.read(name)
    assert tree.read("/three") == b"three"
    assert tree.names("/") == ["dead", "three"]
    assert tree.status("/three") == DirectoryTree(str(tmp_path)).status("/three")
    tree.close()
