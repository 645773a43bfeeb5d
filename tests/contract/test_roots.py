# SPDX-License-Identifier: Apache-2.0
"""The root file systems of the tests have the properties that their names promise."""

from __future__ import annotations

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundles
from tests.contract.roots import Roots
from tests.contract.runtimes import run
from tests.contract.views import questions

LIBC = {
    "debian": ("libm.so.6", "/usr/lib/x86_64-linux-gnu/libm.so.6"),
    "lib64": ("libm.so.6", "/usr/lib64/libm.so.6"),
    "distroless": ("libm.so.6", "/lib/x86_64-linux-gnu/libm.so.6"),
    "musl": ("libc.musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1"),
}


@pytest.mark.parametrize("kind", roots.KINDS)
def test_dlprobe_reports_found_and_missing_libraries(kind: str, bundle_of: Bundles) -> None:
    """In each kind of image, dlprobe opens the C library."""
    name, real = LIBC[kind]
    args = questions(runs=[["/dlprobe", name, "libnothing.so.1"]])
    (ran,) = run(bundle_of(kind, ["/probe", *args])).view.runs
    answers = ran.found()
    assert answers[name]["real"] == real
    assert "libnothing.so.1" in answers["libnothing.so.1"]["error"]


@pytest.mark.parametrize(
    ("kind", "expected"), [("debian", 0), ("lib64", 0), ("distroless", 127), ("musl", 0)]
)
def test_images_with_a_shell(kind: str, expected: int, bundle_of: Bundles) -> None:
    """All except the distroless image have a shell with ls."""
    args = questions(runs=[["/bin/sh", "-c", "ls /probe"]])
    (ran,) = run(bundle_of(kind, ["/probe", *args])).view.runs
    assert ran.rc == expected


def test_lib64_needs_its_loader_cache(root_of: Roots, bundle_of: Bundles) -> None:
    """Without ld.so.cache no dynamically linked program starts."""
    root = root_of("lib64")
    (root / "etc/ld.so.cache").unlink()
    (ran,) = run(bundle_of(root, ["/probe", *questions(runs=[["/dlprobe"]])])).view.runs
    assert ran.rc == 127
    assert "libc.so.6" in ran.output


def test_distroless_has_no_loader_configuration(root_of: Roots) -> None:
    """It has no ldconfig, no ld.so.conf, no ld.so.cache and no shell."""
    root = root_of("distroless")
    names = {p.name for p in root.rglob("*")}
    assert not names & {"ldconfig", "ld.so.conf", "ld.so.conf.d", "ld.so.cache", "sh", "bash"}


@pytest.mark.parametrize("kind", ["distroless", "musl"])
def test_mounted_ldconfig_runs_in_each_image(kind: str, bundle_of: Bundles) -> None:
    """It reports that the image has no cache."""
    bundle = bundle_of(kind, ["/probe", *questions(runs=[["/ldconfig", "-p"]])])
    bundle.mount(roots.ldconfig(), "/ldconfig")
    (ran,) = run(bundle).view.runs
    assert ran.rc == 1
    assert "ld.so.cache" in ran.output


def test_copies_of_a_root_are_independent(root_of: Roots) -> None:
    """A write to a copy does not change the original."""
    before = roots.listing(roots.musl())
    root = root_of("musl")
    assert roots.listing(root) == before
    (root / "etc/passwd").write_text("changed", encoding="utf-8")
    (root / "etc/new").touch()
    after = roots.listing(root)
    assert {k for k in after if after[k] != before.get(k)} == {"etc/passwd", "etc/new"}
    assert roots.listing(roots.musl()) == before
