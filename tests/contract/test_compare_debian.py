# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare` with the driver layout of Debian's packages, in nvidia/current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import Installation, asks
from tests.contract.test_compare import (
    by_cdi,
    by_legacy,
    comparison_without_differences,
    differences,
    nvidia_alone,
)
from tests.simulated.layouts import Layout
from tests.simulated.node import make_node
from tests.simulated.profiles import LIBRARY_DIR

BESIDE = "libnvidia-gpucomp.so"


@pytest.fixture
def debian(node8: Installation, tmp_path: Path) -> Installation:
    """Return a node with NVIDIA's stack only, whose driver has Debian's layout."""
    node = make_node(tmp_path / "node", "h100x8", layout="debian")
    return nvidia_alone(node8, tmp_path / "debian", node)


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_cdi_modes_omit_libraries_of_other_directories(
    kind: str, debian: Installation, tmp_path: Path
) -> None:
    """The CDI modes omit libraries outside of libcuda's directory: a known difference."""
    with by_cdi(debian, tmp_path, kind=kind) as live:
        one = comparison_without_differences(live, "nvidia-cdi")
    known = [i["name"] for i in one["items"] if "for plugins on Debian" in (i["reason"] or "")]
    assert f"{LIBRARY_DIR}/nvidia/current/gbm/nvidia-drm_gbm.so" in known
    missing = [i for i in one["items"] if i["verdict"] == "only-gpuhook"]
    assert BESIDE in {i["name"].rpartition("/")[2].partition(".5")[0] for i in missing}
    for item in missing:
        assert "/nvidia/current/" not in item["name"]
        assert "1908" in item["reason"]


@pytest.mark.parametrize("capabilities", [None, "utility,compute,video,graphics"])
@pytest.mark.parametrize("kind", ["debian", "lib64"])
def test_legacy_mode_mounts_libraries_of_the_loader_cache(
    capabilities: str | None, kind: str, debian: Installation, tmp_path: Path
) -> None:
    with by_legacy(debian, tmp_path, kind=kind, capabilities=capabilities) as live:
        one = comparison_without_differences(live, "nvidia-legacy")
    same = {i["name"] for i in one["items"] if i["kind"] == "library" and i["verdict"] == "same"}
    assert f"{BESIDE}.{debian.node.node.driver.version}" in same


@pytest.mark.parametrize(
    ("profile", "layout"),
    [("t4", "flat"), ("t4", "lib64"), ("h100x8", "lib64"), ("h100x8", "debian")],
)
def test_gpuhook_has_each_file_of_the_cdi_modes(
    profile: str, layout: Layout, node8: Installation, tmp_path: Path
) -> None:
    """On each driver layout, gpuhook provides each name, link and file of the CDI modes."""
    node = make_node(tmp_path / "node", profile, layout=layout)
    mine = nvidia_alone(node8, tmp_path / "gpuhook", node)
    with by_cdi(mine, tmp_path, env=asks("0", "all"), name="0") as live:
        one = comparison_without_differences(live, "nvidia-cdi", "0")
    surplus = [i["name"] for i in one["items"] if i["verdict"] == "only-there"]
    assert [name for name in surplus if not name.endswith("/gbm/nvidia-drm_gbm.so")] == []


def test_missing_library_in_libcudas_directory_is_a_difference(
    debian: Installation, tmp_path: Path
) -> None:

    def plant(config: dict[str, Any]) -> None:
        mounts = config["mounts"]
        mounts[:] = [m for m in mounts if "/libnvidia-ml.so." not in m["destination"]]

    with by_cdi(debian, tmp_path, plant) as live:
        (item,) = differences(live)
    assert (item["kind"], item["verdict"]) == ("mount", "only-gpuhook")
    assert "/nvidia/current/libnvidia-ml.so." in item["name"]
