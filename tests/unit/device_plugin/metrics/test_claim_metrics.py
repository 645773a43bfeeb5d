# SPDX-License-Identifier: Apache-2.0
"""The metrics of the devices that containers have by claims, from entries of the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.device_plugin.metrics import exposition, ledger_entries
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.exposition import ScrapedFacts

CLAIM = {
    "namespace": "team",
    "claim": "mine",
    "request": "gpu",
    "device": "GPU-1",
    "share": "5f0c",
}
POD = {"id": "c1", "pod": "trainer-0", "namespace": "team", "container": "main"}


def series(**entry: Any) -> list[dict[str, str]]:
    """Return the labels of each device that the container has by a claim."""
    facts = ScrapedFacts(entries=(ledger_entries.holder_entry({**POD, **entry}),))
    found = exposition.metrics(facts, Counters().snapshot())
    (metric,) = [one for one in found if one.name == "gpuhook_claim_holder"]
    return [dict(zip(metric.labels, key, strict=True)) for key, _ in metric.series]


def test_each_device_of_a_claim_has_its_share() -> None:
    whole = {**CLAIM, "device": "GPU-2", "share": ""}
    of_pod = {"namespace": "team", "pod": "trainer-0", "container": "main"}
    assert series(claims=[CLAIM, whole]) == [
        {"claim": "team/mine", "share": "5f0c", "gpu": "GPU-1", **of_pod},
        {"claim": "team/mine", "share": "", "gpu": "GPU-2", **of_pod},
    ]


@pytest.mark.parametrize("claims", [None, 5, [], ["x"], [{}], [{**CLAIM, "share": 5}]])
def test_malformed_claims_are_skipped(claims: object) -> None:
    assert series(claims=claims) == []
