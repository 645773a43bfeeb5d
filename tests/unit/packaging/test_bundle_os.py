# SPDX-License-Identifier: Apache-2.0
"""The hot path's replacement of os and os.path gives the same results as the real modules."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st


def loaded() -> ModuleType:
    """Return the module, which is in no package: install.py copies it next to the bundle."""
    file = Path(__file__).parents[3] / "packaging/gpuhook_os.py"
    spec = importlib.util.spec_from_file_location("gpuhook_os", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpuhook_os"] = module
    spec.loader.exec_module(module)
    return module


gpuhook_os = loaded()
PATHS = st.text(alphabet="ab./", max_size=12)


@given(PATHS)
def test_paths_are_split_and_normalized(path: str) -> None:
    """Every path has the same result as in posixpath."""
    for name in ("split", "dirname", "basename", "normpath", "abspath"):
        assert getattr(gpuhook_os, name)(path) == getattr(posixpath, name)(path), name


@given(PATHS, st.lists(PATHS, max_size=3))
def test_paths_are_joined(first: str, rest: list[str]) -> None:
    assert gpuhook_os.join(first, *rest) == posixpath.join(first, *rest)


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "/nowhere", "", "/dev/null", "a\0b"])
def test_kinds_of_files(path: str) -> None:
    """A path leads to the same kind of file as in os.path."""
    for name in ("exists", "isdir", "isfile"):
        assert getattr(gpuhook_os, name)(path) == getattr(os.path, name)(path), name


def test_names_of_the_module() -> None:
    """System calls are those of os, other names are forwarded, unknown ones are errors."""
    assert gpuhook_os.fsencode("a\udcff") == b"a\xff"
    assert gpuhook_os.open is os.open
    assert gpuhook_os.environ["PATH"] == os.environ["PATH"]
    assert gpuhook_os.makedirs is os.makedirs
    assert gpuhook_os.path.realpath is os.path.realpath
    with pytest.raises(AttributeError):
        gpuhook_os.no_such_name  # noqa: B018
