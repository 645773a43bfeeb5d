# SPDX-License-Identifier: Apache-2.0
"""Generated config.json texts: the container has what gpuhook has read, or gpuhook refuses."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gpuhook.apply.spec import config_json, oci_spec
from gpuhook.errors import GpuhookError
from gpuhook.request import parse
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import asks
from tests.contract.runtimes import run
from tests.depth import depth
from tests.differential import config_documents
from tests.figures import Figures

ROUNDS = depth(20, 150, 1_000)
NAMES = ("A", "B", "C", "NVIDIA_VISIBLE_DEVICES")


def read_by_gpuhook(raw: bytes) -> tuple[dict[str, str], int] | None:
    """Return the variables and the user as gpuhook reads them, None if it refuses config.json."""
    try:
        spec = config_json.parsed("config.json", raw)
        config_json.require_unambiguous(spec)
    except GpuhookError:
        return None
    variables = parse.environment(spec)
    found = {name: as_shown(variables[name]) for name in NAMES if name in variables}
    return found, oci_spec.owner(spec)[0]


def as_shown(value: str) -> str:
    """Return a value with `?` for what is not Unicode; runc has U+FFFD there."""
    return "".join("?" if "\ud800" <= one <= "\udfff" or one == "\ufffd" else one for one in value)


def read_by_runtime(made: Bundle, engine: str) -> tuple[dict[str, str], int] | None:
    """Return them as the container's program has them, None if it does not start."""
    result = run(made, [engine], engine)
    if result.rc:
        return None
    view = result.view
    found = {name: as_shown(view.values(name)[-1]) for name in NAMES if view.values(name)}
    return found, view.uid


@pytest.mark.soak
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["runc", "crun"])
def test_container_has_what_gpuhook_has_read(
    engine: str, bundle_of: Bundles, figures: Figures
) -> None:
    made = bundle_of("distroless", ["/probe"], ["A=1", *asks("0"), "B=1"])
    config, random, counts = made.config(), Random(engine), Counter[str]()
    for _ in range(ROUNDS):
        raw = config_documents.variant(config, random)
        ours = read_by_gpuhook(raw)
        counts["refused by gpuhook"] += ours is None
        if ours is None:
            continue
        made.file.write_bytes(raw)
        theirs = read_by_runtime(made, engine)
        counts[f"refused by {engine}"] += theirs is None
        counts["equal"] += theirs is not None
        assert theirs in (None, ours), raw
    assert counts["equal"] > ROUNDS / 10, counts
    for what, count in counts.items():
        figures.record(f"config.json texts in containers of {engine}: {what}", str(count))
