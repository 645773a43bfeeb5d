# SPDX-License-Identifier: Apache-2.0
"""Common edits are omitted from devices without a change for the container."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.cdi.hot.container_edits import merged
from gpuhook.vendors.nvidia.spec import gpu_spec

NAMES = st.sampled_from("abc")
ENV = st.lists(st.builds("{}=1".format, NAMES), max_size=3, unique=True)
NODES = st.lists(st.builds(lambda name: {"path": f"/dev/{name}"}, NAMES), max_size=3)
GIDS = st.lists(st.integers(1, 3), max_size=2, unique=True)
EDITS = st.fixed_dictionaries({}, optional={"env": ENV, "deviceNodes": NODES, "gids": GIDS}).map(
    lambda found: {
        {"gids": "additionalGids"}.get(key, key): value for key, value in found.items() if value
    }
)


@given(EDITS, EDITS)
def test_omitted_common_edits_change_no_container(
    own: dict[str, Any], common: dict[str, Any]
) -> None:
    """The common edits of the spec are applied first."""
    device: Any = {"name": "x", "containerEdits": own}
    reduced = gpu_spec.without_common(device, common)  # type: ignore[arg-type]
    both = merged([common, own])  # type: ignore[list-item]
    assert merged([common, reduced["containerEdits"]]) == both  # type: ignore[list-item]
    assert bool(reduced["containerEdits"]) == bool(own)
