# SPDX-License-Identifier: Apache-2.0
"""Extra devices of any variables and mounts: reported or refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import policy
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.extras import extra_devices

WORDS = st.sampled_from(["enabled", "all", "none", "0", "3", "1048575", "1048576", ",", " ", "x"])
VALUES = st.one_of(st.text(max_size=20), st.lists(WORDS, max_size=6).map(",".join))
ENTRIES = st.tuples(st.sampled_from([*vocabulary.VOCABULARY.extras, "OTHER"]), VALUES).map("=".join)
PREFIX = vocabulary.VOCABULARY.mount_prefix
PLACES = st.one_of(VALUES.map(lambda v: f"{PREFIX}/imex/{v}"), st.just(PREFIX), st.text())
MOUNTS = st.fixed_dictionaries({"source": st.just("/dev/null"), "destination": PLACES})
SPECS = st.fixed_dictionaries(
    {
        "process": st.fixed_dictionaries({"env": st.lists(ENTRIES, max_size=8)}),
        "mounts": st.lists(st.one_of(MOUNTS, st.none(), st.text()), max_size=5),
    }
)


@given(spec=SPECS, accepts=st.booleans(), ignores=st.booleans())
def test_extra_devices_are_reported_or_refused(
    spec: dict[str, Any], accepts: bool, ignores: bool
) -> None:
    """Names of accepted requests are of a known kind."""
    settings = Settings()
    settings.accept_volume_mounts, settings.ignore_imex_channels = accepts, ignores
    try:
        found = extra_devices.extra_requests(spec, settings)
    except GpuhookError as error:
        if error.code not in ("GH1004", "GH1005", "GH1036", "GH1039"):
            raise
        return
    for one in found:
        assert bool(one.reason) == (one.result != policy.WON)
        if one.result == policy.WON:
            assert all(vocabulary.is_extra(name) for name in one.names)
            assert not (one.is_list and ignores)
            assert one.kind == "env" or accepts
    listed = [one for one in found if one.is_list and one.result == policy.WON]
    assert len(listed) <= 1
