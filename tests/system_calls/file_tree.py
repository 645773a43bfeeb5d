# SPDX-License-Identifier: Apache-2.0
"""The files below some directories, compared before and after a writer was killed or failed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from gpuhook.host.hot import files
from gpuhook.install import container_directories

Tree = dict[str, str]


def read_tree(places: Iterable[Path]) -> Tree:
    """Return for each path its type and content: of a file, a link or a node."""
    found: Tree = {}
    for place in places:
        for directory, names, others in os.walk(place):
            for name in (*names, *others):
                path = os.path.join(directory, name)
                found[path] = _content(path)
    return found


def _content(path: str) -> str:
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode):
        return f"file {stat.S_IMODE(status.st_mode):o} {Path(path).read_bytes()!r}"
    if stat.S_ISLNK(status.st_mode):
        return f"link {os.readlink(path)}"
    return f"{stat.S_IFMT(status.st_mode):o} {status.st_rdev}"


def leftovers(tree: Tree) -> list[str]:
    """Return the temporary files in a tree, and those in temporary directories."""
    return [path for path in tree if any(map(_is_temporary, path.split("/")))]


def _is_temporary(name: str) -> bool:
    return files.is_temporary(name) or name.endswith(("~", ".tmp", ".new", ".gone"))


def globbed_leftovers(tree: Tree) -> list[str]:
    """Return the temporary files that a program reads which reads all files of a directory."""
    read = (".yaml", ".json", ".toml", ".conf", ".service", ".rules")
    own = (path for path in tree if _is_temporary(os.path.basename(path)))
    return [path for path in own if path.endswith(read)]


def torn(tree: Tree, old: Tree, new: Tree, varying: set[str]) -> list[str]:
    """Return the files of `tree` that are neither the old ones nor the new ones.

    `varying` are files whose content differs from run to run: of those a half one is not found. An
    uninstallation needs its list of directories until its end.
    """
    wrong = []
    for path in {*old, *new, *tree} - set(leftovers(tree)):
        if path.endswith(f"/{container_directories.LIST}"):
            continue
        allowed = {old.get(path), new.get(path)}
        content = tree.get(path)
        if content in allowed or path in varying:
            continue
        wrong.append(f"{path}: {content!r:.200} instead of one of {str(allowed)[:400]}")
    return wrong


def incomplete(tree: Tree, new: Tree, varying: set[str]) -> list[str]:
    """Return the files of `tree` that differ from the new ones, except temporary ones.

    What is recorded for a root depends on the loader's files that an earlier run wrote there.
    """
    return [
        f"not completed: {path}: {tree.get(path)!r:.200}, not {new.get(path)!r:.200}"
        for path in {*new, *tree} - varying - set(leftovers(tree))
        if tree.get(path) != new.get(path) and "/state/loader/" not in path
    ]
