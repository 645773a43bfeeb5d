# SPDX-License-Identifier: Apache-2.0
"""The containers whose plan considers further vendors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuhook.vendors.hot import prefilter
from gpuhook.vendors.hot.prefilter import FURTHER


def env(entry: str) -> dict[str, Any]:
    return {"process": {"env": ["PATH=/bin", entry]}}


@pytest.mark.parametrize(
    ("spec", "is_further"),
    [
        (env("AMD_VISIBLE_DEVICES=0"), True),
        # An engine gave the devices: their memory is limited all the same.
        (env("AMD_GPU_MEMORY_LIMIT=1024"), True),
        (env("DOCKER_RESOURCE_GPU=0"), True),
        ({"annotations": {"cdi.k8s.io/x": "amd.com/gpu=0"}}, True),
        ({"mounts": [{"destination": "/var/run/amd-container-devices/0"}]}, True),
        (env("NVIDIA_VISIBLE_DEVICES=all"), False),
        ({"annotations": [], "mounts": "x", "process": None}, False),
    ],
)
def test_words_of_further_vendors(spec: dict[str, Any], is_further: bool) -> None:
    """The wrapper searches the bytes of config.json for the same words."""
    assert prefilter.is_further(spec) is is_further
    assert any(word in json.dumps(spec) for word in FURTHER) is is_further
