# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare` where Debian's packages have laid out the driver: in nvidia/current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import Installation, asks
from tests.contract.test_compare import by_cdi, by_legacy, differences, nvidia_alone, unchanged
from tests.simulated.layouts import Layout
from tests.simulated.node import make_node
from tests.simulated.profiles import LIBRARY_DIR

BESIDE = "libnvidia-gpucomp.so"


@pytest.fixture
def debian(node8: Installation, tmp_path: Path) -> Installation:
    """Give a node with NVIDIA's stack alone, whose driver is Debian's."""
    node = make_node(tmp_path / "node", "h100x8", layout="debian")
    return nvidia_alone(node8, tmp_path / "debian", node)


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_cdi_leaves_out_what_is_beside_libcuda(
    kind: str, debian: Installation, tmp_path: Path
) -> None:
    """Its libraries in the directory above are known to be left out, and only these."""
    with by_cdi(debian, tmp_path, kind=kind) as live:
        one = unchanged(live, "nvidia-cdi")
    known = [i["name"] for i in one["items"] if "for plugins on Debian" in (i["reason"] or "")]
    assert f"{LIBRARY_DIR}/nvidia/current/gbm/nvidia-drm_gbm.so" in known
    missing = [i for i in one["items"] if i["verdict"] == "only-gpuhook"]
    assert BESIDE in {i["name"].rpartition("/")[2].partition(".5")[0] for i in missing}
    for found in missing:
        assert "/nvidia/current/" not in found["name"]
        assert "1908" in found["reason"]


@pytest.mark.parametrize("capabilities", [None, "utility,compute,video,graphics"])
@pytest.mark.parametrize("kind", ["debian", "lib64"])
def test_the_legacy_mode_takes_what_the_loader_knows(
    capabilities: str | None, kind: str, debian: Installation, tmp_path: Path
) -> None:
    with by_legacy(debian, tmp_path, kind=kind, capabilities=capabilities) as live:
        one = unchanged(live, "nvidia-legacy")
    same = {i["name"] for i in one["items"] if i["kind"] == "library" and i["verdict"] == "same"}
    assert f"{BESIDE}.{debian.node.node.driver.version}" in same


@pytest.mark.parametrize(
    ("profile", "layout"),
    [("t4", "flat"), ("t4", "lib64"), ("h100x8", "lib64"), ("h100x8", "debian")],
)
def test_every_capability_on_every_layout(
    profile: str, layout: Layout, node8: Installation, tmp_path: Path
) -> None:
    """Every name, link and file that the CDI modes give is one of gpuhook's, too."""
    node = make_node(tmp_path / "node", profile, layout=layout)
    mine = nvidia_alone(node8, tmp_path / "gpuhook", node)
    with by_cdi(mine, tmp_path, env=asks("0", "all"), name="0") as live:
        one = unchanged(live, "nvidia-cdi", "0")
    surplus = [i["name"] for i in one["items"] if i["verdict"] == "only-there"]
    assert [name for name in surplus if not name.endswith("/gbm/nvidia-drm_gbm.so")] == []


def test_a_library_that_is_missing_is_found(debian: Installation, tmp_path: Path) -> None:
    """A difference in libcuda's own directory is never excused."""

    def plant(config: dict[str, Any]) -> None:
        mounts = config["mounts"]
        mounts[:] = [m for m in mounts if "/libnvidia-ml.so." not in m["destination"]]

    with by_cdi(debian, tmp_path, plant) as live:
        (found,) = differences(live)
    assert (found["kind"], found["verdict"]) == ("mount", "only-gpuhook")
    assert "/nvidia/current/libnvidia-ml.so." in found["name"]
