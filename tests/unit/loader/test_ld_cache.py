# SPDX-License-Identifier: Apache-2.0
"""ld.so.cache, compared with what the real ldconfig writes and lists."""

import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache, ld_cache_entries, ld_cache_format

X86_64 = 0x0303
LINE = re.compile(r'^\t(\S+) \((.*?)(?:, hwcap: "(.*?)")?\) => (\S+)$', re.MULTILINE)
DRIVER = [
    (b"libcuda.so.1", b"/opt/driver/libcuda.so.1"),
    (b"libnvidia-ml.so.1", b"/opt/driver/libnvidia-ml.so.1"),
    (b"libnvidia-nvvm70.so.4", b"/opt/driver/libnvidia-nvvm70.so.4"),
    (b"libaaa.so.1", b"/opt/driver/libaaa.so.1"),
    (b"libzzz.so.10", b"/opt/driver/libzzz.so.10"),
]

pytestmark = pytest.mark.skipif(not shutil.which("ldconfig"), reason="there is no ldconfig")


def listed(data: bytes, where: Path) -> list[tuple[str, str, str]]:
    """Return what the real `ldconfig -p` reads from `data`: soname, path, hwcaps directory."""
    (where / "listed.cache").write_bytes(data)
    command = ["ldconfig", "-p", "-C", str(where / "listed.cache")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(soname, path, hwcaps) for soname, _, hwcaps, path in LINE.findall(text)]


def ours(data: bytes) -> list[tuple[str, str, str]]:
    return [
        (e.soname.decode(), e.path.decode(), (e.hwcaps or b"").decode())
        for e in ld_cache_entries.parse(data)
    ]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with libraries whose names are hard to sort, some in glibc-hwcaps directories."""
    root = tmp_path_factory.mktemp("root")
    (root / "etc").mkdir()
    (root / "x.c").write_text("int x;")
    (root / "etc/ld.so.conf").write_text("/l\n")
    sonames = ["a.so.9", "a.so.10", "cuda.so.1", "x264.so.164", "x264.so.2", "stdc++.so.6", "z.so"]
    sonames += ["a2.so.1", "a10.so.1", "A.so.1", "a_b.so.1", "a-b.so.1", "a.so"]
    for folder in ("l", "l/glibc-hwcaps/x86-64-v2", "l/glibc-hwcaps/x86-64-v3"):
        (root / folder).mkdir(parents=True)
        for name in sonames if folder == "l" else ["cuda.so.1", "z.so"]:
            made = root / folder / f"lib{name}"
            command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,lib{name}", "-o", str(made)]
            subprocess.run([*command, str(root / "x.c")], check=True)
    return root


def written(tree: Path, form: str = "new") -> bytes:
    command = ["ldconfig", "-X", "-r", str(tree), "-c", form, "-C", f"/etc/{form}.cache"]
    subprocess.run(command, check=True)
    return (tree / f"etc/{form}.cache").read_bytes()


def test_cache_of_this_machine(tmp_path: Path) -> None:
    """It is read as `ldconfig -p` reads it."""
    data = Path("/etc/ld.so.cache").read_bytes()
    assert ours(data) == listed(data, tmp_path)


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_each_format_is_parsed(form: str, tree: Path, tmp_path: Path) -> None:
    """All formats that ldconfig writes, with glibc-hwcaps names if the format has them."""
    data = written(tree, form)
    expected = listed(written(tree), tmp_path)
    if form == "old":
        expected = [(soname, path, "") for soname, path, _ in expected]
    assert ours(data) == expected
    assert len(expected) == 17


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_merge_is_readable_and_lossless(form: str, tree: Path, tmp_path: Path) -> None:
    """The real ldconfig lists the driver first among its names, and all other entries."""
    before = ours(written(tree, form))
    data = ld_cache.merged(written(tree, form), DRIVER, flags=0x0303)
    after = listed(data, tmp_path)
    added = [(soname.decode(), path.decode(), "") for soname, path in DRIVER]
    assert sorted(after) == sorted(before + added)
    assert [entry for entry in after if entry not in added] == before
    assert next(e for e in after if e[0] == "libcuda.so.1") == added[0]


def test_order_is_that_of_ldconfig(tree: Path, tmp_path: Path) -> None:
    """Added names are where the real ldconfig sorts them, numbers as numbers."""
    names = [b"libb.so.9", b"libb.so.10", b"lib9.so", b"libx264.so.3", b"lib.so", b"libA1.so"]
    add = [(name, b"/o/" + name) for name in names]
    merged = listed(ld_cache.merged(written(tree), add, flags=0x0303), tmp_path)
    (tree / "o").mkdir()
    for name in names:
        made = tree / "o" / name.decode()
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{name.decode()}", "-o", str(made)]
        subprocess.run([*command, str(tree / "x.c")], check=True)
    (tree / "etc/ld.so.conf").write_text("/l\n/o\n")
    try:
        assert merged == listed(written(tree), tmp_path)
    finally:
        shutil.rmtree(tree / "o")
        (tree / "etc/ld.so.conf").write_text("/l\n")


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_second_merge_changes_nothing(form: str, tree: Path) -> None:
    once = ld_cache.merged(written(tree, form), DRIVER, flags=0x0303)
    assert ld_cache.merged(once, DRIVER, flags=0x0303) == once
    assert ld_cache.merged(once, DRIVER, [(b"libcuda.so.1", b"/old")], flags=0x0303) == once


def unsorted(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Return a cache with entries in this order, in which glibc finds few."""
    base, strings, entries = ld_cache_format.base_of(len(pairs)), b"", b""
    for name, path in pairs:
        at = base + len(strings)
        strings += path + b"\0"
        entries += ld_cache_format.ENTRY.pack(X86_64, at + len(path) - len(name), at, 0, 0)
    return ld_cache_format.write(ld_cache_format.Table(entries, strings, base))


def test_second_merge_into_an_unsorted_cache_changes_nothing() -> None:
    """An image may have one: a container that starts again does not add the driver again."""
    chance = random.Random(3)
    image = [(b"lib%d.so" % number, b"/l/lib%d.so" % number) for number in range(30)]
    for _ in range(200):
        chance.shuffle(image)
        data = unsorted([*image, *chance.sample(DRIVER, 2)])
        merged = ld_cache.merged(data, DRIVER, flags=X86_64)
        assert ld_cache.merged(merged, DRIVER, flags=X86_64, was_merged=True) == merged
        left = ours(ld_cache.merged(merged, [], DRIVER, flags=X86_64))
        assert {name for name, _, _ in left} == {name.decode() for name, _ in image}


def test_missing_cache_is_created(tmp_path: Path) -> None:
    """Without a cache in the image the new one has the driver alone."""
    data = ld_cache.merged(None, DRIVER, flags=0x0303)
    assert sorted(e[:2] for e in listed(data, tmp_path)) == sorted(
        (soname.decode(), path.decode()) for soname, path in DRIVER
    )
    assert ld_cache.merged(data, DRIVER, flags=0x0303) == data
    assert ours(ld_cache.merged(None, [], flags=0x0303)) == []


def test_entries_of_an_older_driver_are_removed(tree: Path, tmp_path: Path) -> None:
    """Entries in `remove` are removed with their strings, and nothing else is."""
    image = written(tree)
    old = [(soname, path.replace(b"driver", b"older")) for soname, path in DRIVER]
    with_old = ld_cache.merged(image, old, flags=0x0303)
    upgraded = ld_cache.merged(with_old, DRIVER, old, flags=0x0303)
    assert b"/opt/older" not in upgraded
    assert listed(upgraded, tmp_path) == listed(
        ld_cache.merged(image, DRIVER, flags=0x0303), tmp_path
    )
    assert ld_cache.merged(upgraded, DRIVER, old, flags=0x0303) == upgraded
    assert listed(ld_cache.merged(with_old, [], old, flags=0x0303), tmp_path) == listed(
        image, tmp_path
    )


def test_added_entry_wins_over_a_removed_one(tree: Path) -> None:
    """A library that is recorded and added again is kept."""
    data = ld_cache.merged(written(tree), DRIVER, DRIVER, flags=0x0303)
    assert (b"libcuda.so.1", b"/opt/driver/libcuda.so.1") in [
        (e.soname, e.path) for e in ld_cache_entries.parse(data)
    ]


def test_first_of_equal_sonames_wins(tree: Path, tmp_path: Path) -> None:
    """Among added libraries with one SONAME, the first one is first in the cache."""
    add = [(b"libcuda.so.1", b"/compat/libcuda.so.1"), *DRIVER]
    entries = listed(ld_cache.merged(written(tree), add, flags=0x0303), tmp_path)
    paths = [path for soname, path, _ in entries if soname == "libcuda.so.1"]
    assert paths[:2] == ["/compat/libcuda.so.1", "/opt/driver/libcuda.so.1"]


def test_extension_is_kept(tree: Path, tmp_path: Path) -> None:
    """ldconfig -p still prints the name of the program that made the cache."""
    (tmp_path / "c").write_bytes(ld_cache.merged(written(tree), DRIVER, flags=0x0303))
    command = ["ldconfig", "-p", "-C", str(tmp_path / "c")]
    assert "Cache generated by: ldconfig" in subprocess.check_output(command, text=True)


def test_ten_thousand_entries(tmp_path: Path) -> None:
    """A cache of 10,000 libraries is merged, and read by the real ldconfig."""
    many = [(b"lib%d.so.%d" % (i, i % 7), b"/m/lib%d.so.%d" % (i, i % 7)) for i in range(10000)]
    data = ld_cache.merged(None, many, flags=0x0303)
    merged = ld_cache.merged(data, DRIVER, flags=0x0303)
    assert len(listed(merged, tmp_path)) == 10000 + len(DRIVER)
    assert ours(merged) == listed(merged, tmp_path)


def test_string_offsets_out_of_bounds_are_a_fault(tree: Path) -> None:
    """An entry whose string is outside the string table is not read."""
    data = bytearray(written(tree))
    for offset in (0, 47, len(data), 0xFFFFFFFF):
        struct.pack_into("<I", data, 48 + 8, offset)
        with pytest.raises(GpuhookError) as caught:
            ld_cache.merged(bytes(data), DRIVER, flags=0x0303)
        assert caught.value.code == "GH1600"


def test_size_and_number_of_entries_are_bounded() -> None:
    """A cache above 16 MiB, or one that claims millions of entries, is refused."""
    with pytest.raises(GpuhookError) as caught:
        ld_cache.merged(bytes(ld_cache_format.MAX_BYTES + 1), DRIVER, flags=0x0303)
    assert caught.value.code == "GH1601"
    assert caught.value.message.startswith("/etc/ld.so.cache of the image is ")
    data = bytearray(ld_cache.merged(None, DRIVER, flags=0x0303))
    struct.pack_into("<I", data, 20, 1 << 31)
    with pytest.raises(GpuhookError) as caught:
        ld_cache_entries.parse(bytes(data))
    assert caught.value.code == "GH1600"


def test_big_endian_is_refused(tree: Path) -> None:
    """A cache that is marked as big-endian is a fault."""
    data = bytearray(written(tree))
    data[28] = 3
    with pytest.raises(GpuhookError, match="big-endian"):
        ld_cache_entries.parse(bytes(data))


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_damaged_cache_is_a_fault_or_readable(form: str, tree: Path) -> None:
    """Truncated and changed caches give a cache that can be read again, or a fault."""
    rng = random.Random(form)
    good = written(tree, form)
    seen = set()
    for turn in range(1500):
        data = bytearray(good[: rng.randrange(len(good))] if turn % 3 == 0 else good)
        for _ in range(rng.randrange(1, 8)):
            if data:
                limit = min(len(data), rng.choice([64, 512, len(data)]))
                data[rng.randrange(limit)] = rng.choice([0, 1, 48, 127, 128, 255])
        try:
            merged = ld_cache.merged(
                bytes(data), DRIVER, [(b"libz.so", b"/l/libz.so")], flags=0x0303
            )
            ld_cache_entries.parse(merged)
        except GpuhookError as error:
            seen.add(error.code)
        else:
            seen.add("merged")
    assert seen == {"GH1600", "merged"}


def test_flags_of_entries(tree: Path) -> None:
    """Flags are those that the real ldconfig writes for this machine; others are named."""
    machine = os.uname().machine
    assert {e.flags for e in ld_cache_entries.parse(written(tree))} == {ld_cache.flags_for(machine)}
    assert ld_cache.flags_for("aarch64") == 0x0A03
    with pytest.raises(GpuhookError) as caught:
        ld_cache.flags_for("vax")
    assert caught.value.code == "GH1602"


@pytest.mark.parametrize("spelling", [b"lib%d.so", b"lib1.so"])
def test_forged_equal_entries_are_read_once(
    spelling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of thousands of equal entries is read once: lib1 equals lib01."""
    count = 4096
    name = b"lib1.so"
    path = b"/x/" + name
    base = ld_cache_format.base_of(count)
    entry = ld_cache_format.ENTRY.pack(0x0303, base + 3, base, 0, 0)
    table = ld_cache_format.Table(entry * count, path + b"\0", base)
    data = ld_cache_format.write(table)
    zeros = [b"lib" + b"0" * n + b"1.so" for n in range(200)] if b"%" in spelling else [name]
    remove = [(zeros[n % len(zeros)], b"/y/%d" % n) for n in range(1000)]
    calls = 0
    whole = ld_cache_format.Table.string

    def counted(self: ld_cache_format.Table, offset: int, limit: int) -> bytes:
        nonlocal calls
        calls += 1
        return whole(self, offset, limit)

    monkeypatch.setattr(ld_cache_format.Table, "string", counted)
    with pytest.raises(GpuhookError, match="more than 256 entries have one name"):
        ld_cache.merged(data, [(name, b"/z/" + name)], remove, flags=0x0303)
    assert calls < 2 * count + len(remove)


@pytest.mark.parametrize(
    ("directory", "answer"),
    [(b"/usr/lib", True), (b"/lib", False), (b"/opt", False), (b"/opt/x", True), (b"/us", False)],
)
def test_directories_of_entries(directory: bytes, answer: bool) -> None:
    """A directory is one of the cache if an entry is in it, not only below it."""
    paths = [b"/usr/lib/liba.so", b"/opt/x/libb.so", b"/opt/x/y/libc.so", b"/z/usr/lib/liba.so"]
    add = [(path.rpartition(b"/")[2], path) for path in paths]
    held = ld_cache.Cache(ld_cache.merged(None, add, flags=0x0303), 0x0303)
    assert held.has_directory(directory) is answer
