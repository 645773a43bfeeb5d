# SPDX-License-Identifier: Apache-2.0
"""Run a test as a user without privileges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
