# SPDX-License-Identifier: Apache-2.0
"""What holds for any spelling of an AMD device."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.cdi.hot import names
from gpuhook.errors import GpuhookError
from gpuhook.vendors.amd.hot import device_ids

UNIQUE_IDS = st.integers(1, (1 << 64) - 1)
PARTS = st.sampled_from(["0", "1", "+", "-", ":", ".", "0x", "GPU-", "amdgpu_xcp_", "a", "F", "$"])
TEXTS = st.one_of(st.text(), st.lists(PARTS, max_size=12).map("".join))


@given(UNIQUE_IDS, st.integers(0, 20), st.booleans(), st.booleans())
def test_every_spelling_of_a_unique_id(
    number: int,
    padding: int,
    is_upper: bool,
    has_prefix: bool,
) -> None:
    """The case and the number of zeros before a unique id do not matter."""
    digits = f"{number:x}".zfill(padding)
    digits = digits.upper() if is_upper else digits
    name = "0x" + digits if has_prefix else digits.zfill(9)
    assert f"GPU-{number:016x}" in device_ids.spellings(name)


@given(TEXTS)
def test_spellings_are_cdi_names(text: str) -> None:
    """What a text means can be looked up in a spec, and means itself."""
    for found in [*device_ids.spellings(text), *device_ids.expanded(text)]:
        assert names.is_device(found)
        assert found in device_ids.spellings(found)


@given(TEXTS, st.integers(0, 64))
def test_advice_has_the_number_of_devices(text: str, count: int) -> None:
    """An unknown name is explained, whatever it is."""
    advice = device_ids.advice(text, [*map(str, range(count)), "all"])
    assert f"{count} devices" in advice
    assert advice.isprintable()


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_ranges(first: int, last: int) -> None:
    """A range has both ends and what is between; a backward one has nothing."""
    found = device_ids.expanded(f"{first}-{last}")
    wanted = list(map(str, range(first, last + 1)))
    assert found == (wanted if len(wanted) <= 4096 else [])


@given(st.lists(st.one_of(TEXTS, st.sampled_from(["all", "ALL", "none"])), max_size=4))
@example(["all", "ALL"])
@example(["none", "0"])
def test_a_request_is_normalized_once(listed: list[str]) -> None:
    """A word for all or no devices is alone, or the request is refused."""
    words = {*listed} & {"all", "All", "ALL", "none", "void"}
    if words and len({name.lower() if name in words else name for name in listed}) > 1:
        with pytest.raises(GpuhookError, match="together"):
            device_ids.normalized(listed, "here")
        return
    found = device_ids.normalized(listed, "here")
    assert device_ids.normalized(found, "here") == found
    assert found == ["all"] or "all" not in found
