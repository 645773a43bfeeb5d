# SPDX-License-Identifier: Apache-2.0
"""The loader caches of generated trees: ldconfig and the loader read them as gpuhook does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from gpuhook.loader import ld_cache, ld_cache_entries
from tests.contract.compiled import dlprobe
from tests.depth import depth
from tests.figures import Figures
from tests.simulated import elf_maker, elf_maker_32

pytestmark = [
    pytest.mark.soak,
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root"),
]
ROUNDS = depth(5, 30, 1_000)
LINE = re.compile(r"\t(?P<name>\S+) \((?P<what>[^)]*)\) => (?P<path>.*)")
DIRECTORIES = ["a", "b/c", "usr/lib/x", "lib/y-" + "z" * 200]
HWCAPS = ["x86-64-v2", "x86-64-v3"]
# The loader takes lib01 for lib1: tests/property/test_cache.py has such names.
NAMES = ["liba.so.1", "liba.so.2", "liba.so.10", "libb.so.1", "libB.so", "lib_.so.0"]
NAMES += ["lib9.so.1", "lib10.so.1", "libé.so.1", "lib" + "l" * 200 + ".so.1", "liba-b.so.3"]
FLAGS = ld_cache.flags_for(os.uname().machine)
Pair = tuple[bytes, bytes]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root file system with a C library, its loader, and a program that calls it."""
    made = tmp_path / "root"
    made.mkdir()
    shutil.copy(dlprobe(), made / "probe")
    for line in subprocess.check_output(["ldd", made / "probe"], text=True).splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path:
            (made / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, made / path[1:])
    (made / "etc").mkdir()
    return made


def fill(place: Path, random: Random) -> None:
    """Make libraries in a directory, and what only looks like one."""
    place.mkdir(parents=True, exist_ok=True)
    for name in random.sample(NAMES, random.randrange(2, 7)):
        path, kind = place / name, random.random()
        if kind < 0.06:
            path.write_bytes(
                random.choice((b"", b"\x7fELF", b"text" * 20, b"\x7fELF\2\1" + b"\xff" * 90))
            )
        elif kind < 0.12:
            elf_maker_32.write(path, name)
        elif kind < 0.16:
            elf_maker.write(path, name, machine=elf_maker.EM_AARCH64)
        elif kind < 0.22:
            path.symlink_to(random.choice(("gone", "../none", name, random.choice(NAMES))))
        elif kind < 0.35:
            elf_maker.write(place / f"{name}.5", name)
            path.symlink_to(f"{name}.5")
        else:
            elf_maker.write(path, name if random.random() < 0.8 else None)


def tree(root: Path, random: Random) -> list[str]:
    """Fill directories of the root again, and return those that ldconfig searches."""
    for directory in (*DIRECTORIES, "drv"):
        shutil.rmtree(root / directory, ignore_errors=True)
    chosen = random.sample(DIRECTORIES, random.randrange(1, len(DIRECTORIES) + 1))
    for directory in chosen:
        fill(root / directory, random)
        if random.random() < 0.3:
            fill(root / directory / "glibc-hwcaps" / random.choice(HWCAPS), random)
    return [f"/{directory}" for directory in chosen]


def ldconfig(root: Path, *options: str) -> str:
    """Call ldconfig for the root, and return its output."""
    command = ["ldconfig", "-r", str(root), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def printed(root: Path) -> list[tuple[str, str, bool, bool]]:
    """Return name, path, is 64-bit and has hwcaps of each entry, as `ldconfig -p` prints them."""
    found = [LINE.fullmatch(line) for line in ldconfig(root, "-p").splitlines()[1:]]
    lines = [one for one in found if one is not None]
    return [
        (
            one["name"],
            one["path"],
            "x86-64" in one["what"].split(", hwcap")[0],
            "hwcap" in one["what"],
        )
        for one in lines
    ]


def parsed(data: bytes) -> list[tuple[str, str, bool, bool]]:
    """Return the same of gpuhook's reader."""
    return [
        (
            os.fsdecode(one.soname),
            os.fsdecode(one.path),
            one.flags == FLAGS,
            one.hwcaps is not None,
        )
        for one in ld_cache_entries.parse(data)
    ]


def loaded(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the path that the loader chooses for each name, each in a separate process."""
    found = {}
    for name in names:
        command = ["/usr/sbin/chroot", str(root), "/probe", name]
        [answer] = json.loads(subprocess.check_output(command, env={"LC_ALL": "C.UTF-8"})).values()
        found[name] = answer.get("path", "")
    return found


def as_printed(path: str) -> str:
    """Return a path as the probe prints it: bytes outside ASCII are spaces."""
    return "".join(chr(byte) if byte < 0x80 else " " for byte in os.fsencode(path))


class Cache:
    """The cache of a root, as ldconfig, the loader and gpuhook read it."""

    def __init__(self, root: Path) -> None:
        self._root, self.file = root, root / "etc/ld.so.cache"

    def compare(self) -> dict[str, str]:
        """Return what the loader chooses for each name; both readers must see the same entries."""
        data = self.file.read_bytes()
        entries = printed(self._root)
        assert parsed(data) == entries
        names = sorted({name for name, *_ in entries})
        by_level = {name for name, _, _, has_level in entries if has_level}
        chosen = loaded(self._root, names)
        cache = ld_cache.Cache(data, FLAGS)
        for name in set(names) - by_level:
            paths = cache.paths([os.fsencode(name)]).get(os.fsencode(name), [])
            there = [one for one in map(os.fsdecode, paths) if (self._root / one[1:]).exists()]
            assert chosen[name] == (as_printed(there[0]) if there else ""), (name, paths)
        return chosen


def test_merged_cache_of_generated_trees(root: Path, figures: Figures) -> None:
    """ldconfig lists what gpuhook reads and writes, and the loader takes the first entry."""
    random, cache, lookups = Random(8), Cache(root), 0
    for _ in range(ROUNDS):
        directories = tree(root, random)
        (root / "etc/ld.so.conf").write_text("\n".join(directories) + "\n", encoding="utf-8")
        # In the compatible format the loader does not see levels of processors.
        has_levels = any(root.rglob("glibc-hwcaps"))
        ldconfig(root, "-c", "new" if has_levels else random.choice(("new", "compat")))
        image = {one[:2] for one in printed(root)}
        before = cache.compare()
        fill(root / "drv", random)
        names = sorted(path.name for path in (root / "drv").iterdir() if _is_library(path))
        add = [(os.fsencode(name), os.fsencode(f"/drv/{name}")) for name in names]
        data = ld_cache.merged(cache.file.read_bytes(), add, flags=FLAGS)
        cache.file.write_bytes(data)
        after = cache.compare()
        assert {one[:2] for one in printed(root)} == image | set(map(_text, add))
        for name, path in map(_text, add):
            assert after[name] == as_printed(path)
        for name in before.keys() - set(names):
            assert after[name] == before[name]
        lookups += len(before) + len(after)
        cache.file.write_bytes(ld_cache.merged(data, [], add, flags=FLAGS))
        assert cache.compare() == before
    figures.record("loader caches: trees compared with ldconfig and the loader", str(ROUNDS))
    figures.record("loader caches: libraries that the loader looked up", str(lookups))


def _is_library(path: Path) -> bool:
    """Return whether the loader of this machine can load a file under its own name."""
    data = path.read_bytes() if path.exists() else b""
    return len(data) > 100 and data[4] == 2 and data[18] == elf_maker.EM_X86_64


def _text(pair: Pair) -> tuple[str, str]:
    return os.fsdecode(pair[0]), os.fsdecode(pair[1])
