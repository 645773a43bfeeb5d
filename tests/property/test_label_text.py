# SPDX-License-Identifier: Apache-2.0
"""Any text of a GPU, a firmware or a file becomes a valid label value."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdDriver, AmdGpu, AmdNode
from gpuhook.vendors.amd.labels import amd_labels
from gpuhook.vendors.labels import label_text

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


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_any_facts_of_amd_gpus_become_valid_labels(facts: list[tuple[str, str]]) -> None:
    """One invalid name or value would make the API server refuse all labels of the node."""
    device = AmdDevice(0, "0000:05:00.0", 0, 128)
    gpus = [
        AmdGpu(index, f"0000:0{index}:00.0", name=name, device_id=other, devices=(device,))
        for index, (name, other) in enumerate(facts)
    ]
    node = AmdNode(AmdDriver(*facts[0]), tuple(gpus))
    for label, value in amd_labels.labels(node, amd_labels.KINDS).values.items():
        prefix, _, name = label.partition("/")
        assert prefix in ("amd.com", "beta.amd.com")
        assert name
        for text in (name, value):
            assert len(text) <= label_text.MAX_LENGTH
            assert VALUE.fullmatch(text)


@given(st.text(alphabet="aB9 ()/", min_size=1, max_size=40))
def test_name_that_amds_labeller_accepts_has_its_value(name: str) -> None:
    device = AmdDevice(0, "0000:05:00.0", 0, 128)
    gpu = AmdGpu(0, "0000:05:00.0", name=name, devices=(device,))
    theirs = re.sub(r"[ /]", "_", re.sub(r"[()]", "", name.strip()))
    found = amd_labels.labels(AmdNode(gpus=(gpu,)), ("product-name",)).values
    if theirs and VALUE.fullmatch(theirs):
        assert found["amd.com/gpu.product-name"] == theirs
        assert found[f"beta.amd.com/gpu.product-name.{theirs}"] == "1"
