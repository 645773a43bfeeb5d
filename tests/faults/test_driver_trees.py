# SPDX-License-Identifier: Apache-2.0
"""Driver roots with link loops, FIFOs, invalid names and too many files: bounded, with reasons."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuhook.errors import GpuhookError
from gpuhook.loader import elf, ld_cache, ld_cache_entries, ld_cache_format
from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import driver_files, libcuda, site_rules
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.modes.tegra import csv_files, link_patterns
from tests.faults.generating import generate
from tests.refusal import refused
from tests.simulated import elf_maker, elf_maker_32, tegra_node, wsl_node
from tests.simulated.node import SimulatedNode

pytestmark = [
    pytest.mark.usefixtures("no_settings"),
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root"),
    pytest.mark.timeout(90),
]
T = TypeVar("T")
V = "580.95.05"
LIB = "usr/lib/x86_64-linux-gnu"
CSV = csv_files.DIRECTORY[1:]
ADDED = [(b"libx.so", b"/libx.so")]
TARGETS = [".", "/", "a/" * 2000, "/" + "x" * 300, "/proc/self/fd/0", "/dev/zero"]


@pytest.fixture(scope="module")
def tegra(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    return tegra_node.make(tmp_path_factory.mktemp("orin"))


@pytest.fixture(scope="module")
def wsl(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    return wsl_node.make(tmp_path_factory.mktemp("wsl"))


def result_or_code(call: Callable[[], T]) -> tuple[T | None, str]:
    """Return (result, "") or (None, code of the raised fault)."""
    try:
        return call(), ""
    except GpuhookError as error:
        return None, error.code


def generate_with_broken_path(simulated: SimulatedNode, path: str, *options: str) -> None:
    """Run generate-cdi with links of all kinds, a FIFO and a directory instead of `path`."""
    place = Path(simulated.host_root, path)
    kept = place.with_name(place.name + ".kept")
    was_there = os.path.lexists(place)
    if was_there:
        place.rename(kept)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        for target in (place.name, f"../{place.parent.name}", *TARGETS):
            place.symlink_to(target)
            generate(simulated, *options)
            place.unlink()
        os.mkfifo(place)
        generate(simulated, *options)
        place.unlink()
        place.mkdir()
        generate(simulated, *options)
        place.rmdir()
    finally:
        if was_there:
            kept.rename(place)


@pytest.mark.parametrize(
    "path",
    [
        f"{LIB}/libnvidia-encode.so.{V}",
        f"{LIB}/libcuda.so.{V}",
        f"{LIB}/libcuda.so.1",
        f"{LIB}/vdpau",
        f"{LIB}/gbm",
        "etc/ld.so.cache",
        "lib/firmware",
        f"lib/firmware/nvidia/{V}/gsp_x.bin",
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "etc/vulkan",
        "usr/lib/xorg/modules",
        "usr/lib/xorg/modules/drivers/nvidia_drv.so",
        "run/nvidia-persistenced/socket",
        "usr/bin/nvidia-smi",
        "usr/lib/i386-linux-gnu",
        "tmp/nvidia-mps",
        "dev/dri",
        "dev/dri/card0",
        "dev/dri/by-path",
        "dev/nvidiactl",
        "dev/nvidia0",
    ],
)
def test_broken_path_in_a_driver_root_is_no_crash(node: SimulatedNode, path: str) -> None:
    generate_with_broken_path(node, path)


@pytest.mark.parametrize(
    "path",
    [CSV, f"{CSV}/devices.csv", f"{CSV}/site.csv", f"{tegra_node.NVIDIA}/libcuda.so.1.1"[1:],
     "dev/nvgpu", "lib", "etc/nv_tegra_release"],
)  # fmt: skip
def test_broken_path_on_tegra_is_no_crash(tegra: SimulatedNode, path: str) -> None:
    generate_with_broken_path(tegra, path, "--mode", "csv")


@pytest.mark.parametrize(
    "path", ["usr/lib/wsl/lib", "usr/lib/wsl/drivers", "usr/lib/wsl/drivers/loop", "dev/dxg"]
)
def test_broken_path_on_wsl_is_no_crash(wsl: SimulatedNode, path: str) -> None:
    generate_with_broken_path(wsl, path, "--mode", "wsl")


def test_site_rules_follow_finite_links_only(node: SimulatedNode, tmp_path: Path) -> None:
    """Link loops, too long chains and pipes are omitted."""
    root = Path(node.host_root)
    rules = tmp_path / "files.d"
    rules.mkdir()
    (root / "opt").mkdir()
    for number in range(60):
        (root / f"opt/long{number}").symlink_to(f"long{number + 1}")
    (root / "opt/long60").write_text("the end")
    (root / "opt/circle").symlink_to("circle")
    os.mkfifo(root / "opt/pipe")
    paths = ["/opt/long0", "/opt/circle", "/opt/long25", "/opt/pipe"]
    text = "add:\n" + "".join(f"- path: {path}\n" for path in paths)
    (rules / "site.yaml").write_text(text)
    found = driver_files.find(Roots(node.driver_root, files_dir=str(rules)))
    assert f"{root}/opt/long60" in [file.host_path for file in found.files]
    warnings = " ".join(found.warnings)
    assert "opt/long0 does not exist" in warnings
    assert "opt/circle does not exist" in warnings


def test_site_rules_in_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "site.yaml")
    with refused("GH1310"):
        site_rules.read(str(tmp_path))


@pytest.mark.parametrize("fmt", ["json", "yaml"])
@pytest.mark.parametrize("hooks", ["auto", "none"])
def test_names_that_are_not_utf8_are_omitted(node: SimulatedNode, fmt: str, hooks: str) -> None:
    """File names and SONAMEs need not be UTF-8; a CDI spec must be."""
    directory = Path(node.host_root, LIB)
    path = directory / f"libnvidia-encode.so.{V}"
    before = path.read_bytes()
    odd = Path(os.fsdecode(os.fsencode(str(directory)) + b"/libodd\xff.so." + V.encode()))
    odd.write_bytes(before)
    path.write_bytes(before.replace(b"libnvidia-encode.so.1", b"libnvidia-\xffncode.so.1"))
    try:
        options = ("--hooks", "none") if hooks == "none" else ()
        done = generate(node, "--format", fmt, *options)
    finally:
        path.write_bytes(before)
        odd.unlink()
    assert done.exit_code == 0
    assert done.stderr.count("is not UTF-8") == 2
    assert "libnvidia-encode" not in done.stdout


def test_directory_with_28000_files_is_read(tmp_path: Path) -> None:
    """Driver libraries and unrelated files."""
    root = tmp_path / "root"
    (root / "usr/lib64").mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml"):
        elf_maker.write(root / f"usr/lib64/{name}.so.{V}", f"{name}.so.1")
    first = root / f"usr/lib64/libnvidia-ml.so.{V}"
    for number in range(20_000):
        os.symlink("x", root / f"usr/lib64/f{number}")
    for number in range(8_000):
        os.link(first, root / f"usr/lib64/libsite{number}.so.{V}")
    found = driver_files.find(Roots(str(root), files_dir=str(tmp_path / "none")))
    assert len(found.files) == 8_002


def test_matches_of_a_pattern_are_bounded(tmp_path: Path) -> None:
    """Links to their own directory multiply with each part of a pattern."""
    for number in range(600):
        (tmp_path / f"l{number}").symlink_to(".")
    assert len(link_patterns.matches(DriverRoot(str(tmp_path)), "/*" * 8)) <= 4096


GOOD = elf_maker.shared_object("libcuda.so.1")
GOOD_32 = elf_maker_32.shared_object("libcuda.so.1")


@pytest.mark.parametrize("whole", [GOOD, GOOD_32], ids=["64", "32"])
def test_truncated_library_is_no_crash(whole: bytes, tmp_path: Path) -> None:
    """It is read with its SONAME, without, or not at all."""
    path = tmp_path / "lib.so"
    for size in range(512):
        path.write_bytes(whole[:size])
        found = elf.read(str(path))
        assert found is None or found.soname in (None, "libcuda.so.1")
        assert elf.note(str(path), b".note.cuda.fw_compatibility") is None


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    is_wide=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 511), st.integers(0, 7)), min_size=1, max_size=6),
)
def test_damaged_library_is_omitted_or_refused(
    tmp_path: Path, data: st.DataObject, is_wide: bool, flips: list[tuple[int, int]]
) -> None:
    """A driver whose library is damaged is described without it, or refused with a code."""
    torn = bytearray(GOOD if is_wide else GOOD_32)
    for at, bit in flips:
        torn[at % len(torn)] ^= 1 << bit
    (tmp_path / "usr/lib64").mkdir(parents=True, exist_ok=True)
    (tmp_path / "usr/lib/i386-linux-gnu").mkdir(parents=True, exist_ok=True)
    for name in ("libcuda", "libnvidia-ml", "libnvidia-encode"):
        elf_maker.write(tmp_path / f"usr/lib64/{name}.so.{V}", f"{name}.so.1")
    place = "usr/lib64" if is_wide else "usr/lib/i386-linux-gnu"
    victim = data.draw(st.sampled_from(["libcuda", "libnvidia-ml", "libnvidia-encode"]))
    (tmp_path / f"{place}/{victim}.so.{V}").write_bytes(torn)
    found, code = result_or_code(
        lambda: driver_files.find(Roots(str(tmp_path), files_dir=str(tmp_path / "none")))
    )
    assert code == "GH1234" if found is None else found.version == V
    elf.note(str(tmp_path / f"{place}/{victim}.so.{V}"), b".note", b"CUDA")


def loader_caches() -> dict[str, bytes]:
    """Return a loader cache in each format."""
    add = [(b"libcuda.so.1", b"/opt/driver/libcuda.so.1"), (b"libc.so.6", b"/lib/libc.so.6")]
    new = ld_cache.merged(None, add, flags=ld_cache.flags_for("x86_64"))
    table = ld_cache_format.read(new)
    table.sections = []  # their offsets are from the start of the file, also after an old header
    bare = ld_cache_format.write(table)
    strings = b"".join(name + b"\0" + path + b"\0" for name, path in add)
    old = b"ld.so-1.7.0\0" + len(add).to_bytes(4, "little")
    at = 0
    for name, path in add:
        for number in (0x303, at, at + len(name) + 1):
            old += number.to_bytes(4, "little")
        at += len(name) + len(path) + 2
    plain = old + strings
    behind = b"ld.so-1.7.0\0" + bytes(4) + bare
    return {"new": new, "old": plain, "both": behind}


@pytest.mark.parametrize("form", ["new", "old", "both"])
def test_truncated_loader_cache_is_merged_or_refused(form: str, tmp_path: Path) -> None:
    """The driver is found by the cache, or not at all."""
    whole = loader_caches()[form]
    (tmp_path / "opt/driver").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    elf_maker.write(tmp_path / f"opt/driver/libcuda.so.{V}", "libcuda.so.1")
    (tmp_path / "opt/driver/libcuda.so.1").symlink_to(f"libcuda.so.{V}")
    cache = tmp_path / "etc/ld.so.cache"
    root = DriverRoot(str(tmp_path))
    flags = ld_cache.flags_for("x86_64")
    for size in range(len(whole) + 1):
        cache.write_bytes(whole[:size])
        found, code = result_or_code(partial(libcuda.locate, root, None))
        assert code == "GH1230" if found is None else found.version == V
        done, code = result_or_code(partial(ld_cache.merged, whole[:size], ADDED, flags=flags))
        if done is None:
            assert code == "GH1600"
            assert size < len(whole)
        else:
            assert any(entry.soname == b"libx.so" for entry in ld_cache_entries.parse(done))
    assert libcuda.locate(root, None).version == V


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"lib", "is not `kind, path`"),
        (b",", "is not one of"),
        (b"lib,", "it has no path"),
        (b", /usr/lib/x", "is not one of"),
        (b"LIB, /x", "is not one of"),
        (b"lib; /x", "is not `kind, path`"),
        (b"dev, nvidia0", "is not an absolute path"),
        (b"lib, ../../etc/shadow", "is not an absolute path"),
        (b"lib, /a\0b", "unprintable"),
        (b"lib, /a\x1b[31m", "unprintable"),
        (b"lib, /" + b"x" * 5000, "too long"),
        (b"lib, /\xff", "is not UTF-8"),
        (b"x" * 100_000, "is not `kind, path`"),
        ("lib, /\u202ex".encode(), "unprintable"),
    ],
)
def test_malformed_csv_line_is_omitted_with_a_reason(line: bytes, reason: str) -> None:
    """The other lines apply."""
    lines, wrong = csv_files.parse(b"dev, /dev/a\n" + line + b"\nlib, /b\n", "x.csv")
    assert [one.path for one in lines] == ["/dev/a", "/b"]
    assert len(wrong) == 1
    assert wrong[0].startswith("x.csv, line 2: ")
    assert reason in wrong[0]
    assert len(wrong[0]) < 300


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_as_a_csv_file(content: bytes) -> None:
    lines, wrong = csv_files.parse(content, "x.csv")
    assert all(one.kind in csv_files.KINDS and one.path for one in lines)
    assert len(wrong) <= 9


def test_patterns_of_a_csv_file_stay_inside_the_root(tegra: SimulatedNode) -> None:
    """Parent directories, open brackets and patterns of whole trees."""
    path = Path(tegra.host_root, CSV, "site.csv")
    patterns = ["/*", "/*/*/*/*/*", "/[", "/[!]*", "/../../*", "/usr/**/x", "?" * 200, "/proc/*/*"]
    kinds = ("lib", "sym", "dir", "dev")
    path.write_text("".join(f"{kind}, {one}\n" for kind in kinds for one in patterns))
    try:
        assert generate(tegra, "--mode", "csv").exit_code == 0
    finally:
        path.unlink()
