# SPDX-License-Identifier: Apache-2.0
"""The root file systems are what they are called."""

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
def test_dlprobe_asks_the_loader(kind: str, bundle_of: Bundles) -> None:
    """In each kind of image dlprobe finds its C library and says why it finds no other."""
    name, real = LIBC[kind]
    asked = questions(runs=[["/dlprobe", name, "libnothing.so.1"]])
    (ran,) = run(bundle_of(kind, ["/probe", *asked])).view.runs
    found = ran.found()
    assert found[name]["real"] == real
    assert "libnothing.so.1" in found["libnothing.so.1"]["error"]


@pytest.mark.parametrize(
    ("kind", "expected"), [("debian", 0), ("lib64", 0), ("distroless", 127), ("musl", 0)]
)
def test_shells(kind: str, expected: int, bundle_of: Bundles) -> None:
    """All but the distroless image have a shell with ls in it."""
    asked = questions(runs=[["/bin/sh", "-c", "ls /probe"]])
    (ran,) = run(bundle_of(kind, ["/probe", *asked])).view.runs
    assert ran.rc == expected


def test_lib64_depends_on_its_cache(root_of: Roots, bundle_of: Bundles) -> None:
    """In the lib64 image nothing that is linked dynamically starts without ld.so.cache."""
    root = root_of("lib64")
    (root / "etc/ld.so.cache").unlink()
    (ran,) = run(bundle_of(root, ["/probe", *questions(runs=[["/dlprobe"]])])).view.runs
    assert ran.rc == 127
    assert "libc.so.6" in ran.output


def test_distroless_has_no_loader_configuration(root_of: Roots) -> None:
    """The distroless image has neither ldconfig nor its settings nor its cache."""
    root = root_of("distroless")
    names = {p.name for p in root.rglob("*")}
    assert not names & {"ldconfig", "ld.so.conf", "ld.so.conf.d", "ld.so.cache", "sh", "bash"}


@pytest.mark.parametrize("kind", ["distroless", "musl"])
def test_ldconfig_can_be_brought_along(kind: str, bundle_of: Bundles) -> None:
    """If an image has no ldconfig, a bind-mounted one reports that there is no cache."""
    bundle = bundle_of(kind, ["/probe", *questions(runs=[["/ldconfig", "-p"]])])
    bundle.mount(roots.ldconfig(), "/ldconfig")
    (ran,) = run(bundle).view.runs
    assert ran.rc == 1
    assert "ld.so.cache" in ran.output


def test_copies_are_equal_and_apart(root_of: Roots) -> None:
    """A copy lists like its original until it is written to; the original stays."""
    before = roots.listing(roots.musl())
    root = root_of("musl")
    assert roots.listing(root) == before
    (root / "etc/passwd").write_text("changed", encoding="utf-8")
    (root / "etc/new").touch()
    after = roots.listing(root)
    assert {k for k in after if after[k] != before.get(k)} == {"etc/passwd", "etc/new"}
    assert roots.listing(roots.musl()) == before
