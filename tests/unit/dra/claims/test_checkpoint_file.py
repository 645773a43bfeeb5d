# SPDX-License-Identifier: Apache-2.0
"""Tests of the file with all claims: its form, and what a change costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint
from gpuhook.dra.claims.claim import AllocatedDevice, Claim
from gpuhook.dra.claims.prepared_claim import HeldDevice, PreparedClaim
from tests.kubelet.allocated_claims import named

Claims = dict[str, PreparedClaim]


def _prepared(name: str) -> PreparedClaim:
    device = AllocatedDevice("gpu", "gpu.nvidia.com", "node1", "gpu-0", consumed={"slots": 1})
    return PreparedClaim(Claim(named(name), (device,)), (HeldDevice("gpu-0", "GPU-0", "", name),))


def _put(checkpoint: ClaimCheckpoint, *claims: PreparedClaim) -> None:
    def change(known: Claims) -> None:
        known.update({one.claim.name.uid: one for one in claims})

    checkpoint.change(change)


def test_a_change_serialises_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change writes all claims, and the text of an unchanged claim is that of before."""
    checkpoint = ClaimCheckpoint(str(tmp_path), "boot")
    claims = [_prepared(f'claim " {number}') for number in range(20)]
    _put(checkpoint, *claims)
    serialised: list[PreparedClaim] = []
    document = PreparedClaim.document

    def counted(claim: PreparedClaim) -> dict[str, Any]:
        serialised.append(claim)
        return document(claim)

    monkeypatch.setattr(PreparedClaim, "document", counted)
    claims[3] = replace(claims[3], is_complete=True)
    _put(checkpoint, claims[3])
    checkpoint.change(lambda known: known.__delitem__(claims[4].claim.name.uid))
    assert serialised == [claims[3]]
    left = {one.claim.name.uid: one for one in claims if one is not claims[4]}
    body = Path(checkpoint.path).read_bytes().partition(b"\n")[2]
    assert body.decode() == json.dumps({uid: document(one) for uid, one in left.items()})
    assert checkpoint.load(checkpoint.path) == (left, "boot")


def test_two_drivers_change_one_file(tmp_path: Path) -> None:
    """A driver writes what the other has written since."""
    first, second = (ClaimCheckpoint(str(tmp_path), "boot") for _ in range(2))
    one, two = _prepared("one"), _prepared("two")
    _put(first, one)
    _put(second, two, replace(one, is_complete=True))
    _put(first, replace(two, token="new"))
    wanted = {one.claim.name.uid: replace(one, is_complete=True)}
    wanted[two.claim.name.uid] = replace(two, token="new")
    assert first.claims() == second.claims() == wanted


def test_no_claims(tmp_path: Path) -> None:
    """The last claim's end leaves a file with no claims."""
    checkpoint = ClaimCheckpoint(str(tmp_path), "boot")
    _put(checkpoint, _prepared("one"))
    checkpoint.change(dict.clear)
    assert checkpoint.load(checkpoint.path) == ({}, "boot")
