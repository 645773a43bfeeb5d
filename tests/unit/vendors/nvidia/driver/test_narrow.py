# SPDX-License-Identifier: Apache-2.0
"""32-bit libraries: their directories on hosts and in containers, and their capability."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.provision import Provision
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.explain.trace import resolution_trace
from gpuhook.loader import ld_cache_entries, library_directory
from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import driver_files, hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests import plans
from tests.simulated import elf_maker, elf_maker_32
from tests.simulated.graphics import NARROW, with_32_bit

V = "580.95.05"
NAMES = {"libcuda": "libcuda.so.1", "libnvidia-ml": "libnvidia-ml.so.1"}
X86_64, I386 = 0x0303, 0x0003


def write(root: Path, directory: str, *, bits: int) -> None:
    """Write the driver's libraries of this ELF class to a directory below `root`."""
    where = root / directory.lstrip("/")
    where.mkdir(parents=True, exist_ok=True)
    maker = elf_maker if bits == 64 else elf_maker_32
    for stem, soname in NAMES.items():
        maker.write(where / f"{stem}.so.{V}", soname)


@pytest.mark.parametrize(
    ("wide", "narrows", "place"),
    [
        ("/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu"),
        (
            "/usr/lib/x86_64-linux-gnu/nvidia/current",
            "/usr/lib/i386-linux-gnu/nvidia/current",
            "/usr/lib/i386-linux-gnu/nvidia/current",
        ),
        ("/usr/lib64", "/usr/lib", "/usr/lib32"),  # Fedora, openSUSE
        ("/usr/lib", "/usr/lib32", "/usr/lib32"),  # Arch
        ("/nix/store/a-graphics-drivers/lib", "/nix/store/b-graphics-32/lib", "/usr/lib32"),
    ],
)
def test_directories_of_distributions_are_searched(
    wide: str, narrows: str, place: str, tmp_path: Path
) -> None:
    """The 32-bit libraries have another directory in containers."""
    write(tmp_path, wide, bits=64)
    write(tmp_path, narrows, bits=32)
    if wide.startswith("/nix"):
        (tmp_path / "run").mkdir()
        for name, target in (("opengl-driver", wide), ("opengl-driver-32", narrows)):
            (tmp_path / "run" / name).symlink_to(target.rpartition("/")[0])
    found = driver_files.find(Roots(str(tmp_path)))
    assert found.warnings == ()
    expected = {f"{place}/{stem}.so.{V}": f"{tmp_path}{narrows}/{stem}.so.{V}" for stem in NAMES}
    paths = {f.container_path: f.host_path for f in found.files}
    assert {p: h for p, h in paths.items() if vocabulary.is_32_bit(p)} == expected
    assert next(f.container_path for f in found.files) == f"{wide}/libcuda.so.{V}"
    assert found.library_dirs == (wide, place)
    links = {link.path: link.target for link in found.links}
    assert links == {f"{where}/libcuda.so": "libcuda.so.1" for where in (wide, place)}


def test_directory_of_both_classes_warns_once(tmp_path: Path) -> None:
    """A broken file in a directory of both searches has one warning."""
    write(tmp_path, "/usr/lib", bits=64)
    (tmp_path / f"usr/lib/libnvidia-tls.so.{V}").write_text("GROUP ( libtls )")
    found = driver_files.find(Roots(str(tmp_path)))
    assert len(found.warnings) == 1
    assert not any(vocabulary.is_32_bit(file.container_path) for file in found.files)


def test_libraries_of_another_version_are_left_out(tmp_path: Path) -> None:
    """32-bit packages that an upgrade left behind are not this driver's."""
    write(tmp_path, "/usr/lib/x86_64-linux-gnu", bits=64)
    elf_maker_32.write(tmp_path / "usr/lib/libcuda.so.535.1.2", "libcuda.so.1")
    assert not any(
        "535" in file.host_path for file in driver_files.find(Roots(str(tmp_path))).files
    )


@pytest.mark.parametrize(
    ("path", "needs"),
    [
        (f"{NARROW}/libcuda.so.{V}", "compute"),
        (f"/usr/lib32/libGLX_nvidia.so.{V}", "graphics"),
        ("/usr/lib32/libcuda.so", "compute"),
        ("/usr/local/nvidia/lib/libnvidia-ml.so.1", "utility"),
        ("/etc/vulkan/icd.d/nvidia_icd.i686.json", "graphics"),
    ],
)
def test_compat32_and_own_capability_are_both_needed(path: str, needs: str) -> None:
    """A container gets 32-bit libraries with compat32 and their own capability."""
    others = frozenset(vocabulary.CAPABILITIES) - {"compat32"}
    assert not vocabulary.is_wanted(path, others)
    assert not vocabulary.is_wanted(path, frozenset({"compat32"}))
    assert not vocabulary.is_wanted(path, frozenset({"compat32", "ngx"}))
    assert vocabulary.is_wanted(path, frozenset({"compat32", needs}))
    node = plans.this_node()
    assert resolution_trace.needed_by(path, node, others, {}) == ["compat32"]
    assert needs in resolution_trace.needed_by(path, node, frozenset({"compat32"}), {})
    assert resolution_trace.needed_by(path, node, others, {path: frozenset({"ngx"})}) == ["ngx"]


def test_facts_of_a_spec_are_those_of_64_bits() -> None:
    """The hook's libcuda, and the NVML that is loaded, are never the 32-bit ones."""
    spec = describe(with_32_bit(dump_file.load("t4")), Choices()).spec
    job = hook_args.of_hook(spec["containerEdits"]["hooks"][0])
    assert job.libcuda == f"/usr/lib/x86_64-linux-gnu/libcuda.so.{V}"
    assert (f"{NARROW}/libcuda.so.{V}", "libcuda.so.1") in job.libraries
    nvml = [m["containerPath"] for m in spec["containerEdits"]["mounts"]]
    assert [path for path in nvml if vocabulary.is_nvml(path)] == [
        f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{V}"
    ]


def test_without_a_hook_32_bit_has_its_own_directory() -> None:
    """LD_LIBRARY_PATH has both classes of a library, in different directories."""
    node = with_32_bit(dump_file.load("t4"))
    spec = describe(node, Choices(hooks="none")).spec
    mounts = {m["containerPath"]: m["hostPath"] for m in spec["containerEdits"]["mounts"]}
    assert mounts["/usr/local/nvidia/lib/libcuda.so.1"] == f"{NARROW}/libcuda.so.{V}"
    wide = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{V}"
    assert mounts[f"{hookless_mounts.DIRECTORY}/libcuda.so.1"] == wide
    assert {"/usr/local/nvidia/lib", hookless_mounts.DIRECTORY} == set(
        hookless_mounts.ENV.partition("=")[2].split(":")
    )


def provided(root: Path) -> list[tuple[str, str, int]]:
    """Return name, path and flags of each entry after both classes were added."""
    wide = "/usr/lib/x86_64-linux-gnu"
    libraries = [(f"{where}/libcuda.so.{V}", "libcuda.so.1") for where in (wide, "/usr/lib32")]
    with Root(str(root)) as opened:
        assert provide(opened, Provision(libraries, [], [])) == []
    entries = ld_cache_entries.parse((root / "etc/ld.so.cache").read_bytes())
    return [(entry.soname.decode(), entry.path.decode(), entry.flags) for entry in entries]


def test_loader_cache_separates_the_classes(tmp_path: Path) -> None:
    """Each program's loader finds the library of its class; a second run changes nothing."""
    once = provided(tmp_path)
    assert sorted(once) == [
        ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", X86_64),
        ("libcuda.so.1", "/usr/lib32/libcuda.so.1", I386),
    ]
    content = (tmp_path / "etc/ld.so.cache").read_bytes()
    assert provided(tmp_path) == once
    assert (tmp_path / "etc/ld.so.cache").read_bytes() == content


@pytest.mark.skipif(shutil.which("ldconfig") is None, reason="no ldconfig to compare with")
def test_entries_equal_those_of_ldconfig(tmp_path: Path) -> None:
    """An ldconfig that runs later in the container writes the same entries."""
    ours = provided(tmp_path)
    for where, bits in (("/usr/lib/x86_64-linux-gnu", 64), ("/usr/lib32", 32)):
        write(tmp_path, where, bits=bits)
        (tmp_path / f"{where[1:]}/libnvidia-ml.so.{V}").unlink()
    subprocess.run(["ldconfig", "-r", str(tmp_path)], check=True, capture_output=True)
    entries = ld_cache_entries.parse((tmp_path / "etc/ld.so.cache").read_bytes())
    theirs = [(entry.soname.decode(), entry.path.decode(), entry.flags) for entry in entries]
    assert sorted(theirs) == sorted(ours)


def test_musl_gets_only_64_bit_directories(tmp_path: Path) -> None:
    """musl's loader does not skip libraries of another class."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/ld-musl-x86_64.so.1").write_text("")
    with Root(str(tmp_path)) as opened:
        libraries = [
            (f"{where}/libcuda.so.{V}", "libcuda.so.1") for where in ("/usr/lib64", NARROW)
        ]
        assert provide(opened, Provision(libraries, [], [])) == []
    named = (tmp_path / "etc/ld-musl-x86_64.path").read_text().split()
    assert "/usr/lib64" in named
    assert NARROW not in named
    assert not (tmp_path / "etc/ld.so.cache").exists()


def test_directory_names_match_as_a_whole() -> None:
    """Only whole names of directories match."""
    assert library_directory.is_narrow("/usr/lib32/libc.so")
    assert library_directory.is_narrow("/lib/i386-linux-gnu/libc.so")
    for path in ("/usr/lib/lib32.so", "/usr/lib64/libc.so", "/opt/mylib32/libc.so"):
        assert not library_directory.is_narrow(path)
