# SPDX-License-Identifier: Apache-2.0
"""Any text of a GPU, a firmware or a file becomes a valid label value."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.labels import label_text

# The validation of label values in Kubernetes' apimachinery.
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
TEXTS = st.text() | st.text(alphabet="aB9-_. ()", max_size=100)
SUFFIXES = st.sampled_from(["", "-SHARED", "-MIG-1g.5gb-SHARED", "-MIG-INVALID"])


@given(TEXTS, SUFFIXES)
def test_any_text_becomes_a_valid_value(text: str, suffix: str) -> None:
    """A value has at most 63 valid characters, with a letter or digit at both ends."""
    value = label_text.value(text, suffix)
    assert len(value) <= label_text.MAX_LENGTH
    assert VALUE.fullmatch(value)
    assert value.endswith(suffix.lstrip("-"))


@given(TEXTS, SUFFIXES)
def test_valid_value_is_unchanged(text: str, suffix: str) -> None:
    value = label_text.value(text, suffix)
    assert label_text.value(value) == value
