# SPDX-License-Identifier: Apache-2.0
"""A program that runs with a directory as its root, as a program of a host does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path


@contextmanager
def running(
    root: Path, name: str, arguments: Sequence[str], directory: str = "/w", user: int = 0
) -> Iterator[None]:
    """Run a program with this name and these arguments. It waits, and does nothing else."""
    shutil.copy2("/usr/bin/busybox", root / name)
    (root / directory[1:]).mkdir(parents=True, exist_ok=True)
    (root / "wait").write_text("echo up; read x", encoding="utf-8")
    process = subprocess.Popen(
        ["sh", "/wait", *arguments],  # busybox selects the applet by the first word
        executable=f"/{name}",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=partial(_enter, root, directory, user),  # noqa: PLW1509 # there are no threads
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
    finally:
        process.communicate()


def _enter(root: Path, directory: str, user: int) -> None:
    os.chroot(root)
    os.chdir(directory)
    if user:
        os.setresuid(user, user, user)
