# SPDX-License-Identifier: Apache-2.0
"""Run a test as a user without privileges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def other_user(load: Callable[[], object]) -> Iterator[None]:
    """Become a user without privileges, after a call that imports what the test needs.

    The interpreter's modules may be in a directory that only root can read.
    """
    load()
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def make_readable(state: Path) -> None:
    """Let every user read root's ledger in a state directory, as an administrator may."""
    (state / "containers").chmod(0o755)
    for entry in (state / "containers").iterdir():
        entry.chmod(0o644)
