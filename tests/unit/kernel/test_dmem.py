# SPDX-License-Identifier: Apache-2.0
"""The files of the controller dmem, in a hierarchy of plain files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gpuhook.kernel import dmem
from tests.simulated.dmem_controller import DmemController, DmemFacts

REGION = "drm/0000:05:00.0/vram"


def cgroup(path: Path, *, passes_on: bool = True, has_files: bool = True) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text("cpu dmem\n", encoding="ascii")
    (path / "cgroup.subtree_control").write_text("cpu dmem" if passes_on else "cpu", "ascii")
    if has_files:
        (path / "dmem.max").write_text(f"{REGION} max\n", encoding="ascii")
    return path


def test_values_by_region(tmp_path: Path) -> None:
    """A name has no space, and "max" is no limit."""
    own = cgroup(tmp_path / "cg")
    (own / "dmem.max").write_text(f"{REGION} 4096\ndrm/0000:03:00.0/stolen max\n", "ascii")
    found = {REGION: 4096, "drm/0000:03:00.0/stolen": dmem.NO_LIMIT}
    assert dmem.regions(str(own), dmem.MAX) == found
    assert dmem.regions(str(own), dmem.MIN) is None
    assert dmem.capacity(str(own)) is None


@pytest.mark.parametrize(
    ("above", "gap"), [((True, False), "pods"), ((False, False), "."), ((True, True), "pods")]
)
def test_directory_that_does_not_enable_the_controller(
    above: tuple[bool, bool], gap: str, tmp_path: Path
) -> None:
    """The highest one; the parent if all say that they enable it."""
    top = cgroup(tmp_path / "cg", passes_on=above[0])
    cgroup(top / "pods", passes_on=above[1])
    own = cgroup(top / "pods/one", has_files=False)
    assert dmem.topmost(str(own)) == str(top)
    assert dmem.first_gap(str(own)) == str((top / gap).resolve())
    assert dmem.has_controller(str(top))
    assert not dmem.has_limits(str(own))


def test_the_double_refuses_as_the_kernel_does(tmp_path: Path) -> None:
    """An unknown region and a wrong value are EINVAL; a limit below the use is ignored."""
    facts = DmemFacts(tmp_path / "facts")
    facts.write({REGION: 1 << 30}, {"/pod/one": {REGION: 8192}}, ("/slice",))
    controller = DmemController(facts)
    controller.store("/pod", "dmem.max", f"{REGION} 64M\n")
    for line in ("drm/none 1", f"{REGION} much", REGION, f"{REGION} -1"):
        with pytest.raises(OSError, match=r"not a value|unknown region") as caught:
            controller.store("/pod", "dmem.max", line)
        assert caught.value.errno == errno.EINVAL
    controller.store("/pod", "dmem.max", f"{REGION} 4096")
    assert controller.show("/pod", "dmem.max") == f"{REGION} {64 << 20}\n"
    controller.store("/pod", "dmem.max", f"{REGION} 10000")
    assert controller.show("/pod", "dmem.max") == f"{REGION} 8192\n"
    controller.store("/pod", "dmem.max", f"{REGION} max")
    assert controller.show("/pod", "dmem.max") == f"{REGION} max\n"
    assert controller.show("/pod", "dmem.current") == f"{REGION} 8192\n"
    assert controller.files("/slice") == ("dmem.max", "dmem.min", "dmem.low", "dmem.current")
    assert controller.files("/slice/one") == ()
