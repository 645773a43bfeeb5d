# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inspect` on containers that NVIDIA's stack, as simulated, has given GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import LIBRARIES, Installation
from tests.contract.live import Live
from tests.contract.test_compare import by_cdi, by_legacy, nvidia

__all__ = ["nvidia"]


def libraries(live: Live) -> dict[str, dict[str, Any]]:
    """Return what the container's loader finds of the driver, by name."""
    done = live.gpuhook("inspect", "-o", "json")
    assert done.rc == 0, done
    loader = json.loads(done.stdout)["loader"]
    assert loader["trouble"] is None
    return {one["name"]: one for one in loader["libraries"]}


@pytest.mark.parametrize("by", ["nvidia-cdi", "nvidia-legacy"])
def test_libraries_that_the_loader_finds(by: str, nvidia: Installation, tmp_path: Path) -> None:
    """Those of a container that gpuhook never touched, from the cache that ldconfig wrote."""
    made = by_cdi if by == "nvidia-cdi" else by_legacy
    with made(nvidia, tmp_path) as live:
        found = libraries(live)
        listed = live.inside("/sbin/ldconfig", "-p").stdout
    assert found["libcuda.so.1"]["path"] == f"{LIBRARIES}/libcuda.so.1"
    assert all(one["cached"] and one["found"] for one in found.values()), found
    assert all(f"\t{name} (" in listed for name in found)
    assert not any(name.startswith("libc.so") for name in found)


def test_libraries_of_musl(nvidia: Installation, tmp_path: Path) -> None:
    """musl's loader searches the directories that a file names, and reads no cache."""
    with by_cdi(nvidia, tmp_path, kind="musl") as live:
        found = libraries(live)
        Path(f"/proc/{live.pid}/root/etc/ld-musl-x86_64.path").unlink()
        lost = libraries(live)
    assert found["libcuda.so.1"]["path"] == f"{LIBRARIES}/libcuda.so.1"
    assert all(one["cached"] and one["found"] for one in found.values()), found
    assert lost
    assert not any(one["cached"] for one in lost.values()), lost


def test_libraries_that_no_cache_leads_to(nvidia: Installation, tmp_path: Path) -> None:
    """If ldconfig did not run, the mounted libraries are listed as not in the cache."""

    def without_cache(config: dict[str, Any]) -> None:
        for hooks in config["hooks"].values():
            hooks[:] = [hook for hook in hooks if "update-ldcache" not in hook["args"]]

    with by_cdi(nvidia, tmp_path, without_cache) as live:
        found = libraries(live)
        text = live.gpuhook("inspect").stdout
    version = nvidia.node.node.driver.version
    name = f"libcuda.so.{version}"
    assert found[name] == {
        "name": name,
        "path": f"{LIBRARIES}/{name}",
        "cached": False,
        "found": True,
    }
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    assert line.split()[-1] == "NO"
