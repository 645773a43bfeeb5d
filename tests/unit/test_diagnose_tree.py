# SPDX-License-Identifier: Apache-2.0
"""A tree of a node's files: paths are the node's own, and links stay inside."""

from __future__ import annotations

from gpuhook.diagnose.node.tree import DirectoryTree

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
