# SPDX-License-Identifier: Apache-2.0
"""Errors of the system as faults, with a cure that the user can follow."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from gpuhook.host.error_text import worded
from tests.unit.other_user import AS_ROOT, NOBODY, other_user


@AS_ROOT
@pytest.mark.parametrize(
    ("owner", "hint"),
    [
        (0, "become root (sudo), or set GPUHOOK_STATE_DIR to a directory of your own"),
        (NOBODY, "make {} a directory that you can write to; GPUHOOK_STATE_DIR names it"),
    ],
)
def test_state_directory_without_permission(
    owner: int, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user cannot make root's directory writable."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # each user can enter /tmp
    os.chown(place, owner, owner)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(place))
    denied = PermissionError(errno.EACCES, "Permission denied", f"{place}/containers")
    with other_user(lambda: worded(denied)):
        error = worded(denied)
    assert (error.code, error.hint) == ("GH1592", hint.format(place))
    place.rmdir()
