# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inspect` on containers that have GPUs by a simulated stack of NVIDIA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import LIBRARIES, Installation
from tests.contract.live import Live
from tests.contract.test_compare import by_cdi, by_legacy, nvidia

__all__ = ["nvidia"]


def loader_libraries(live: Live) -> dict[str, dict[str, Any]]:
    """Return the driver's libraries that the container's loader finds, by name."""
    done = live.gpuhook("inspect", "-o", "json")
    assert done.rc == 0, done
    loader = json.loads(done.stdout)["loader"]
    assert loader["trouble"] is None
    return {one["name"]: one for one in loader["libraries"]}


@pytest.mark.parametrize("by", ["nvidia-cdi", "nvidia-legacy"])
def test_libraries_of_the_loader_cache_are_reported(
    by: str, nvidia: Installation, tmp_path: Path
) -> None:
    """A container of NVIDIA's stack has the libraries of the cache that ldconfig wrote."""
    made = by_cdi if by == "nvidia-cdi" else by_legacy
    with made(nvidia, tmp_path) as live:
        by_name = loader_libraries(live)
        listed = live.inside("/sbin/ldconfig", "-p").stdout
    assert by_name["libcuda.so.1"]["path"] == f"{LIBRARIES}/libcuda.so.1"
    assert all(one["cached"] and one["found"] for one in by_name.values()), by_name
    assert all(f"\t{name} (" in listed for name in by_name)
    assert not any(name.startswith("libc.so") for name in by_name)


def test_libraries_of_musls_path_file_are_reported(nvidia: Installation, tmp_path: Path) -> None:
    """musl's loader searches the directories of a path file, and has no cache."""
    with by_cdi(nvidia, tmp_path, kind="musl") as live:
        by_name = loader_libraries(live)
        Path(f"/proc/{live.pid}/root/etc/ld-musl-x86_64.path").unlink()
        without_path_file = loader_libraries(live)
    assert by_name["libcuda.so.1"]["path"] == f"{LIBRARIES}/libcuda.so.1"
    assert all(one["cached"] and one["found"] for one in by_name.values()), by_name
    assert without_path_file
    assert not any(one["cached"] for one in without_path_file.values()), without_path_file


def test_libraries_outside_of_the_cache_are_reported(nvidia: Installation, tmp_path: Path) -> None:
    """If ldconfig did not run, the mounted libraries are reported as not cached."""

    def without_cache(config: dict[str, Any]) -> None:
        for hooks in config["hooks"].values():
            hooks[:] = [hook for hook in hooks if "update-ldcache" not in hook["args"]]

    with by_cdi(nvidia, tmp_path, without_cache) as live:
        by_name = loader_libraries(live)
        text = live.gpuhook("inspect").stdout
    version = nvidia.node.node.driver.version
    name = f"libcuda.so.{version}"
    assert by_name[name] == {
        "name": name,
        "path": f"{LIBRARIES}/{name}",
        "cached": False,
        "found": True,
    }
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    assert line.split()[-1] == "NO"
