# SPDX-License-Identifier: Apache-2.0
"""Images with loader files that are made to use much time or memory: create and attach succeed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_format, ld_so_conf, loader_paths
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.roots import Roots
from tests.contract.runtimes import SECONDS, run_command
from tests.contract.test_loader_view import COMPAT
from tests.simulated import elf_maker

ENTRIES = ld_cache_format.MAX_ENTRIES
FLAGS = 0x0303
MEMORY = 96 << 20  # bytes of address space; the interpreter uses a third


def _forge_cache(root: Path, name: bytes) -> None:
    """Write a cache of equal entries into the image, and a drop-in that records as many paths."""
    path = b"/x/" + name
    head = [b"glibc-ld.so.cache1.1", ENTRIES, len(path) + 1, 2, 0]
    base = ld_cache_format.base_of(ENTRIES)
    entry = ld_cache_format.ENTRY.pack(FLAGS, base + 3, base, 0, 0)
    text = ld_cache_format._HEADER.pack(*head) + entry * ENTRIES + path + b"\0"
    (root / "etc/ld.so.cache").write_bytes(text)
    count = min(ld_so_conf.MAX_LIBRARIES, ld_so_conf.MAX_BYTES // (3 * len(name) + 30))
    recorded = [(name, b"/y/%d" % number) for number in range(count)]
    (root / loader_paths.FIRST[1:]).write_bytes(ld_so_conf.first([], [], recorded))


@pytest.mark.parametrize(
    "name",
    [b"libcuda.so.1", b"libother.so.1", b"00a" * 80, b"\xe9" + b"a" * 200, b"libcuda.so.001"],
)
def test_create_with_a_forged_cache(
    name: bytes, node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """The work is not 65,536 cache entries times 4,096 recorded libraries."""
    root = root_of("debian")
    _forge_cache(root, name)
    view = node8.run(bundle_of(root, ["/probe"], asks("0"))).view
    assert "/dev/nvidia0" in view.gpus()


def test_attach_with_a_forged_cache(
    node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """Neither the plan nor the written cache multiplies the entries."""
    root = root_of("debian")
    _forge_cache(root, b"libcuda.so.1")
    bundle = bundle_of(root, ["/bin/sleep", "1000"])
    with node8.lifecycle(bundle) as container:
        container.start()
        words = [
            "attach",
            container.id,
            "--device",
            "0",
            "--state-root",
            str(bundle.path / "state"),
        ]
        done = run_command([str(node8.bindir / "gpuhook"), *words], {**os.environ, **node8.env})
        assert done.rc == 0, done.stderr


def test_full_compatibility_directory_needs_little_memory(
    node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """Of a directory with 5,000 libraries only the first names are read."""
    root = root_of("debian")
    place = root / COMPAT
    place.mkdir(parents=True)
    elf_maker.write(place / "libcuda.so.999.10.01", "libcuda.so.1")
    for number in range(5_000):
        (place / f"lib{number}.so.1").symlink_to("libcuda.so.999.10.01")
    bundle = bundle_of(root, ["/probe"], asks("0"))
    log = bundle.path / "log"
    command = [node8.runtime, "--log", str(log), "create", "--bundle", str(bundle.path), "full"]
    env = {**os.environ, **node8.on("/bin/true")}
    subprocess.run(["prlimit", f"--as={MEMORY}", *command], env=env, check=True, timeout=SECONDS)
    assert "more than 128 libraries" in log.read_text(encoding="utf-8")
