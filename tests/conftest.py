# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of all kinds share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

# gRPC would go on in a child that is forked off one of its tests' processes, without its files, and
# abort it. No program of ours that forks loads it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# No test asserts a time: on a busy machine each example may take as long as it likes.
settings.register_profile("gpuhook", deadline=None)
settings.load_profile("gpuhook")


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Take back how a test has set up the log: its stream ends with it."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Give an empty directory whose path is short: a socket's address is of 107 bytes at most."""
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.fixture
def plugins_path(short_path: Path) -> Path:
    """Give the place for a kubelet's directory of sockets."""
    return short_path / "device-plugins"
