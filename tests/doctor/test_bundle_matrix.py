# SPDX-License-Identifier: Apache-2.0
"""doctor has the same results for a node and for its support bundle."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook import support_bundle
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE
from gpuhook.support_bundle import bundle_archive, bundle_contents
from tests.depth import every
from tests.doctor.broken import all_of_them
from tests.doctor.case import MAKERS, is_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuhook.doctor.examination import Examination
    from tests.doctor.case import Broken, FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")


# Bundles do not contain users, homes, addresses and log messages: these checks do not apply to the
# bundles of these nodes.
_USERS = ("host.", "nvidia-toolkit.no-cgroups", "amd.users")
LEFT_OUT = {
    "imex-daemon-stopped": ("devices.imex",),
    "amd-memory-limit-without-dmem": (*_USERS, "amd.dmem"),  # the ledger has the limits
    "device-plugin-without-driver": ("plugin.", "node."),
    "apparmor-keeps-namespaces": _USERS,
    "rootless-docker-sets-rules": (*_USERS, "docker."),
    "user-without-subordinate-ids": _USERS,
    "user-without-memory-controller": _USERS,
    "newuidmap-not-installed": _USERS,
}


def _findings(examination: Examination, but: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [
        (r.check.id, f.status, f.subject, f.message, f.meaning, f.command)
        for r in examination.results
        for f in (r.finding,)
        if not r.check.id.startswith(but)
    ]


def _bundled(case: FaultCase, directory: Path) -> tuple[Examination, str]:
    """Return the examination of a node, and the path of the support bundle of the same node."""
    node = bundle_contents.recording_node(case.examined())
    examination = examine(node, checks())
    contents = bundle_contents.collect(node, {}, {})
    path = str(directory / "bundle.tar.gz")
    bundle_archive.write(path, contents.members, contents.made)
    return examination, path


@pytest.mark.parametrize("profile", ["t4", "h100x8", "a100-mig", "mi300x8", "t4-and-mi300x"])
def test_bundle_of_a_healthy_node(
    profile: str, healthy: Callable[[str], FaultCase], tmp_path: Path
) -> None:
    on_node, path = _bundled(healthy(profile), tmp_path)
    in_bundle = examine(support_bundle.bundle_node(path), checks())
    but = _USERS if profile == "mi300x8" else ()
    assert _findings(in_bundle, but) == _findings(on_node, but)
    assert in_bundle.is_well


@pytest.mark.parametrize("broken", every(4, all_of_them()), ids=lambda broken: broken.name)
def test_bundle_of_a_broken_node(
    broken: Broken, fresh: Callable[[str], FaultCase], tmp_path: Path
) -> None:
    case = fresh(broken.profile)
    broken.do(case)
    on_node, path = _bundled(case, tmp_path)
    but = LEFT_OUT.get(broken.name, _USERS if broken.profile in MAKERS else ())
    in_bundle = examine(support_bundle.bundle_node(path), checks())
    assert _findings(in_bundle, but) == _findings(on_node, but)
    failed = {one.check.id for one in in_bundle.of(FAILED)}
    assert failed <= {one.check.id for one in on_node.of(FAILED)}


def test_bundle_without_recorded_facts_has_no_failure(
    healthy: Callable[[str], FaultCase], tmp_path: Path
) -> None:
    node = bundle_contents.recording_node(healthy("t4").examined())
    made = bundle_contents.collect(node, {}, {})  # no check has recorded facts
    path = str(tmp_path / "bundle.tar.gz")
    bundle_archive.write(path, made.members, made.made)
    again = examine(support_bundle.bundle_node(path), checks())
    unrecorded = [r for r in again.results if "not recorded" in r.finding.message]
    assert unrecorded
    assert {r.finding.status for r in unrecorded} == {NOT_APPLICABLE}
