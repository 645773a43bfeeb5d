# SPDX-License-Identifier: Apache-2.0
"""Entries that a detach removes from the loader cache."""

from __future__ import annotations

import os

import pytest

from gpuhook.apply.live import unplug_plan
from gpuhook.loader import ld_cache, ld_cache_entries

OTHER = (b"libmine.so.1", b"/opt/libmine.so.1")


@pytest.mark.parametrize("ours", [b"/lib", b"/usr/lib"])
@pytest.mark.parametrize("images", [b"/lib", b"/usr/lib"])
def test_entries_match_through_links_of_directories(ours: bytes, images: bytes) -> None:
    """An ldconfig in the container may name /lib for /usr/lib, or the reverse."""
    flags = ld_cache.flags_for(os.uname().machine)
    data = ld_cache.merged(None, [(b"libcuda.so.1", images + b"/libcuda.so.1"), OTHER], flags=flags)
    entries = [(b"libcuda.so.1", ours + b"/libcuda.so.1")]
    (change,) = unplug_plan._without(entries, data, was_there=True)
    left = [(one.soname, one.path) for one in ld_cache_entries.parse(change.data or b"")]
    assert left == [OTHER]
    assert entries == [(b"libcuda.so.1", ours + b"/libcuda.so.1")]
