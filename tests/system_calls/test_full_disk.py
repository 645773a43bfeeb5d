# SPDX-License-Identifier: Apache-2.0
"""Each program that writes files, on a full disk, without a free inode, and on a read-only one.

It succeeds, or it reports an error with a code; the files are the old or the new ones, whole. With
space again, the command succeeds. A container that starts has its GPU.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.contract.runtimes import Result
from tests.depth import cases
from tests.system_calls import file_tree
from tests.system_calls.file_tree import Tree
from tests.system_calls.writers import WRITERS, Writer

DISKS = ("full", "no inode", "read-only")
EVERYDAY = ("generate-cdi",)


@contextmanager
def _disk(kind: str, place: Path, writer: Writer) -> Iterator[None]:
    """Mount a small tmpfs with the files of a directory there, and leave no space in it.

    In the end there is space, and the writer succeeds.
    """
    saved = place.with_name(place.name + ".whole")
    subprocess.run(["cp", "-a", place, saved], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "small", place], check=True)
    try:
        subprocess.run(["cp", "-a", f"{saved}/.", place], check=True)
        filler = place / "filler~"
        if kind == "full":
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        elif kind == "no inode":
            used = sum(len(names) + len(others) for _, names, others in os.walk(place)) + 1
            subprocess.run(["mount", "-o", f"remount,nr_inodes={used}", place], check=True)
        else:
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        yield
        if kind == "full":
            filler.unlink()
        else:
            options = "remount,rw" if kind == "read-only" else "remount,nr_inodes=0"
            subprocess.run(["mount", "-o", options, place], check=True)
        assert writer.run().rc == 0, f"{place.name} {kind}: the second run"
    finally:
        subprocess.run(["umount", place], check=True)
        shutil.rmtree(saved)


@pytest.mark.parametrize("name", cases(WRITERS, EVERYDAY))
def test_writer(name: str, apart: Installation, tmp_path: Path) -> None:
    """Each of the directories that it writes to, in turn."""
    place = tmp_path / "writer"
    place.mkdir()
    writer = WRITERS[name](apart, place)
    writer.save()
    old, new, again = writer.tree(), writer.whole_run(), writer.whole_run()
    varying = {path for path in {*new, *again} if new.get(path) != again.get(path)}
    findings = []
    for directory in writer.places:
        for kind in DISKS:
            writer.reset()
            with _disk(kind, directory, writer):
                done = writer.run()
                tree = writer.tree()
            tree = {path: text for path, text in tree.items() if not path.endswith("filler~")}
            wrong = file_tree.torn(tree, old, new, varying | state_files(tree))
            wrong += trouble(name, done, tree)
            findings += [f"{directory.name} {kind}: {one}: {done}" for one in wrong]
    assert not findings, "\n".join(findings)


def trouble(name: str, done: Result, tree: Tree) -> list[str]:
    """Return what is wrong with the end of a writer."""
    found = [word for word in ("Traceback", "GH1491") if word in done.stderr]
    if done.rc not in (0, 1):
        found.append("status")
    if done.rc == 1 and not re.search(r"GH\d{4}", done.stderr):
        found.append("no code")
    if name == "create" and done.rc == 0 and "nvidia0" not in _config(tree):
        found.append("no GPU in the container")
    return found


def state_files(tree: Tree) -> set[str]:
    """Return the caches, the files of the ledger and the record: not each run writes them."""
    return {path for path in tree if "/state/" in path or path.endswith("/record.json")}


def _config(tree: Tree) -> str:
    return next(text for path, text in tree.items() if path.endswith("bundle/config.json"))
