# SPDX-License-Identifier: Apache-2.0
"""A device has several names: what goes under one is gone under all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.bundles import rule
from tests.contract.live import Live, sleeping, started
from tests.contract.product import Product, asks


def held(live: Live) -> list[dict[str, object]]:
    """Return what `gpuhook ps` lists of the container."""
    return [one for one in live.product.holders() if one["id"] == live.id]


@pytest.mark.parametrize("given", ["2", "uuid", "replica"])
@pytest.mark.parametrize("taken", ["uuid", "2", "node"])
def test_ps_after_a_detach(given: str, taken: str, node8: Product, tmp_path: Path) -> None:
    """What was attached under one name and detached under another is held no more."""
    uuid = str(node8.gpu(2).uuid)
    names = {"2": "2", "uuid": uuid, "replica": f"{uuid}::1", "node": node8.device(2)}
    with started(sleeping(tmp_path), node8) as live:
        live.attach(names[given])
        assert len(held(live)) == 1
        live.detach(names[taken])
        assert held(live) == []


def test_one_of_two_replicas(node8: Product, tmp_path: Path) -> None:
    """The device stays with the replica that stays, and both changes are told."""
    uuid = str(node8.gpu(2).uuid)
    with started(sleeping(tmp_path), node8) as live:
        live.attach(f"{uuid}::1")
        assert f"noted as held: {uuid}::2" in live.attach(f"{uuid}::2")["notes"]
        done = live.detach(f"{uuid}::1")
        assert (done["steps"], done["notes"]) == ([], [f"no longer noted as held: {uuid}::1"])
        (one,) = held(live)
        assert one["replicas"] == [f"{uuid}::2"]
        assert node8.device(2) in live.view().gpus()


def test_a_wildcard_that_allows_it(node8: Product, tmp_path: Path) -> None:
    """On v1 a rule for all devices of a major cannot be denied for one: then nothing is done."""
    wild = {**rule(195, 0), "minor": -1}
    resources = {"devices": [{"allow": False, "access": "rwm"}, wild]}
    with started(sleeping(tmp_path, linux={"resources": resources}), node8) as live:
        live.attach("2")
        before = live.seen()
        live.refused("GH1704", "detach", "--device", "2")
        after = live.seen()
        assert (after.nodes, after.files) == (before.nodes, before.files)
        assert sorted(after.rules) == sorted(before.rules)
        assert live.report("repair")["steps"] == []


def test_who_asks_and_has_none(node8: Product, tmp_path: Path) -> None:
    """A plain runtime gives a container nothing of what it asks for, and inspect says so."""
    with started(sleeping(tmp_path, env=asks("all")), node8) as live:
        done = live.gpuhook("inspect", "--exit-code")
        assert done.rc == 1
        assert "GH1745" in done.stdout
        assert "NVIDIA_VISIBLE_DEVICES=all" in done.stdout
        live.attach("2")
        assert live.gpuhook("inspect", "--exit-code").rc == 0
