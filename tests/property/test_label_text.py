# SPDX-License-Identifier: Apache-2.0
"""Whatever a GPU, a firmware or a file says, it becomes a label that the API server takes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.labels import label_text

# Kubernetes: apimachinery's validation of label values.
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
TEXTS = st.text() | st.text(alphabet="aB9-_. ()", max_size=100)
SUFFIXES = st.sampled_from(["", "-SHARED", "-MIG-1g.5gb-SHARED", "-MIG-INVALID"])


@given(TEXTS, SUFFIXES)
def test_any_text_becomes_a_valid_value(text: str, suffix: str) -> None:
    """At most 63 characters, of the allowed ones, with a letter or digit at both ends."""
    value = label_text.value(text, suffix)
    assert len(value) <= label_text.MAX_LENGTH
    assert VALUE.fullmatch(value)
    assert value.endswith(suffix.lstrip("-"))


@given(TEXTS, SUFFIXES)
def test_a_value_stays_as_it_is(text: str, suffix: str) -> None:
    """What is a valid value already is not changed."""
    value = label_text.value(text, suffix)
    assert label_text.value(value) == value
