# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of all kinds share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def plugins_path() -> Iterator[Path]:
    """Give a directory for a kubelet's sockets: its path is short, as sun_path needs it."""
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp") as place:
        yield Path(place, "device-plugins")
