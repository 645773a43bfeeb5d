# SPDX-License-Identifier: Apache-2.0
"""The profile of a create: its phases exist, and every module comes from a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.create_profile import ProfiledCreate
from tests.bench.measure import Case
from tests.bench.profiled_create import MODULES, PHASES
from tests.bench.stage import fresh
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation, asks

TRUE_PROGRAM = "/bin/true"


def profiled(apart: Installation, bundle: Bundle) -> ProfiledCreate:
    env = apart.on(TRUE_PROGRAM)
    return ProfiledCreate(
        apart, Case("create", lambda: fresh(bundle, [apart.runtime], TRUE_PROGRAM), env)
    )


def test_a_create_has_all_phases_and_loads_bundles_only(
    apart: Installation, bundle_of: Callable[..., Bundle], root_of: Callable[[str], Path]
) -> None:
    """The first create of an image, its second one, and that of a container that starts again."""
    bundle = bundle_of("debian", ["/probe"], asks("all", "all"))
    kept = bundle.root.with_name("kept")
    shutil.copytree(bundle.root, kept, symlinks=True)
    create = profiled(apart, bundle)
    create.times()  # it compiles the spec and the settings
    for is_new in (True, False, False):
        if is_new:
            shutil.rmtree(apart.state / "loader")
            shutil.rmtree(bundle.root)
            shutil.copytree(kept, bundle.root, symlinks=True)
        times = create.times()
        assert create.imported == []
        assert {phase for phase, *_ in PHASES} <= times.keys()
        assert MODULES + "gpuhook.entry.create" in times
        assert (MODULES + "gpuhook.loader.ld_cache" in times) or not is_new


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.thorough
def test_instructions_are_counted(apart: Installation, bundle_of: Callable[..., Bundle]) -> None:
    create = profiled(apart, bundle_of("debian", ["/probe"], asks("all", "all")))
    create.times()
    counts = create.instructions()
    assert {phase for phase, *_ in PHASES} <= counts.keys()
    assert all(count > 0 for count in counts.values())
    assert counts["interpreter: start"] > 5000  # thousands
