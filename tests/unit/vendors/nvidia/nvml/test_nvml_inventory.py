# SPDX-License-Identifier: Apache-2.0
"""The inventory from NVML, with the real pynvml on a small real libnvidia-ml.so.1."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import requirement_check, requirements
from gpuhook.vendors.nvidia.hot.requirement_check import KnownGpu
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated import build, elf_maker, nvml_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

T4 = nvml_profile.text(dump_file.load("t4"))


def stub(directory: Path, profile: str | None, *, old: bool = False) -> str:
    """Put a stub library and its `profile` into `directory` and return its path."""
    library = directory / "libnvidia-ml.so.580.95.05"
    library.unlink(missing_ok=True)  # it may still be mapped
    shutil.copy(build.nvml_stub(old=old), library)
    if profile is not None:
        (directory / "nvml-stub.profile").write_text(profile, encoding="utf-8")
    return str(library)


def code_of_start(path: str, module_version: str | None = None) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught, nvml_inventory.opened(path, module_version):
        pass
    return caught.value


@pytest.mark.parametrize("name", ["t4", "h100x8", "a100-mig"])
def test_all_facts_of_a_gpu(tmp_path: Path, name: str) -> None:
    """Every fact that NVML reports is read, also a minor that differs from the index."""
    node = dump_file.load(name)
    with nvml_inventory.opened(stub(tmp_path, nvml_profile.text(node))) as answering:
        assert answering.driver_version() == node.driver.version
        assert answering.cuda_version() == node.driver.cuda
        for gpu, known in zip(answering.gpus(), node.gpus, strict=True):
            expected = nvml_profile.with_settings(known)
            for fact in nvml_inventory.QUESTIONS:
                assert getattr(gpu, fact) == getattr(expected, fact), fact
            assert gpu.lost is None


@pytest.mark.parametrize("fact", sorted(nvml_inventory.QUESTIONS.keys() - {"mig_mode"}))
@pytest.mark.parametrize("error", [3, 13, 999])
def test_unsupported_field_is_unknown(tmp_path: Path, fact: str, error: int) -> None:
    """A call that fails leaves its fact unknown and all others known."""
    with nvml_inventory.opened(stub(tmp_path, f"{T4}fail {fact} {error}\n")) as answering:
        (gpu,) = answering.gpus()
    unknown = [name for name in nvml_inventory.QUESTIONS if getattr(gpu, name) is None]
    assert unknown == [fact]
    assert gpu.lost is None


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("mig_mode enabled", "enabled"),
        ("mig_mode disabled", "disabled"),
        ("mig_mode unsupported", "unsupported"),
        ("fail mig_mode 13", None),
    ],
)
def test_mig_mode_of_a_gpu(tmp_path: Path, line: str, mode: str | None) -> None:
    """A GPU that does not support MIG differs from a library without the function."""
    with nvml_inventory.opened(stub(tmp_path, f"{T4}{line}\n")) as answering:
        assert answering.gpus()[0].mig_mode == mode


@pytest.mark.parametrize("answered", range(len(nvml_inventory.QUESTIONS) + 1))
def test_gpu_that_is_lost_during_the_calls(tmp_path: Path, answered: int) -> None:
    """It keeps the facts that it has reported, and the others are listed."""
    h100 = nvml_profile.text(dump_file.load("h100x8"))
    first, rest = h100.split("gpu\n", 2)[1:]
    profile = f"driver 580.95.05\ngpu\n{first}lost_after {answered}\ngpu\n{rest}"
    with nvml_inventory.opened(stub(tmp_path, profile)) as answering:
        gpus = answering.gpus()
    known = [name for name in nvml_inventory.QUESTIONS if getattr(gpus[0], name) is not None]
    assert known == list(nvml_inventory.QUESTIONS)[: max(answered - 1, 0)]
    assert gpus[0].lost == "fallen off the bus or otherwise inaccessible"
    assert [gpu.lost for gpu in gpus[1:]] == [None] * 7


def test_gpu_without_a_handle_has_a_reason(tmp_path: Path) -> None:
    """It is listed with NVML's own text."""
    with nvml_inventory.opened(stub(tmp_path, f"{T4}fail handle 4\n")) as answering:
        (gpu,) = answering.gpus()
    assert gpu.lost == "NVML says: Insufficient Permissions"
    assert gpu.index == 0


def test_old_library_reports_what_it_can(tmp_path: Path) -> None:
    """A library without the _v2 and _v3 names; the other facts are unknown."""
    with nvml_inventory.opened(stub(tmp_path, T4, old=True)) as answering:
        assert answering.cuda_version() is None
        (gpu,) = answering.gpus()
    assert gpu.uuid == "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913"
    assert gpu.pci_bus_id == "00000000:00:1E.0"
    assert (gpu.minor, gpu.mig_mode, gpu.architecture) == (None, None, None)


def test_two_libraries_alternate(tmp_path: Path) -> None:
    """Each library is used for its own calls, though pynvml has one global library."""
    for name in ("t4", "h100x8", "t4"):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        with nvml_inventory.opened(
            stub(directory, nvml_profile.text(dump_file.load(name)))
        ) as answering:
            assert len(answering.gpus()) == len(dump_file.load(name).gpus)


def test_unknown_brand_of_nvml_is_a_brand(tmp_path: Path) -> None:
    """NVIDIA's CUDA images have alternatives for brand=unknown: this is NVML's brand 0."""
    text = nvml_profile.text(replace(dump_file.load("t4"), gpus=(_unknown_brand(),)))
    assert "brand 0\n" in text
    with nvml_inventory.opened(stub(tmp_path, text)) as answering:
        (gpu,) = answering.gpus()
    assert gpu.brand == "unknown"
    (facts,) = requirement_check.requirement_facts(
        ["/dev/nvidia0"], requirement_check.facts_of_inventory(Driver(), [gpu]), KnownGpu
    )
    (asked,) = requirements.required_terms(
        {"NVIDIA_REQUIRE_CUDA": "brand=tesla brand=unknown,arch>=7"}
    )
    assert requirements.of_requirement(asked, facts) == requirements.MET


def _unknown_brand() -> Gpu:
    return replace(dump_file.load("t4").gpus[0], brand="unknown")


def test_version_mismatch_has_both_versions(tmp_path: Path) -> None:
    """A library of a driver other than the loaded module is refused."""
    error = code_of_start(stub(tmp_path, "init 18\n"), "570.86.15")
    assert error.code == "GH1203"
    assert "580.95.05" in error.message
    assert "570.86.15" in error.message


@pytest.mark.parametrize(
    ("profile", "code"),
    [(None, "GH1204"), ("init 9\n", "GH1204"), ("init 4\n", "GH1205"), ("init 999\n", "GH1206")],
)
def test_failures_of_a_start(tmp_path: Path, profile: str | None, code: str) -> None:
    """Driver not loaded, no permission and other errors have a code each, and name the library."""
    path = stub(tmp_path, profile)
    error = code_of_start(path)
    assert error.code == code
    assert path in error.message


def test_file_that_is_not_elf(tmp_path: Path) -> None:
    """It is a fault with the loader's reason."""
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("no library\n" * 1000, encoding="utf-8")
    error = code_of_start(str(path))
    assert error.code == "GH1202"
    assert "invalid ELF header" in error.message


def test_library_that_is_not_nvml(tmp_path: Path) -> None:
    """A real library without NVML's functions."""
    path = tmp_path / "libother.so.1"
    elf_maker.write(path, "libother.so.1")
    error = code_of_start(str(path))
    assert error.code == "GH1202"
    assert "not an NVML library" in error.message


def test_every_fact_has_a_source() -> None:
    """NVML reports a fact, or the list here has its source."""
    sources = {
        "index": "NVML's order",
        "numa_node": "sysfs",
        "time_slice": "nvidia-smi",
        "coherent": "coherence.py",
        "lost": "NVML's errors",
        "instances": "nvml_mig.py",
        "drm": "sysfs",
    }
    assert set(Gpu.__dataclass_fields__) - set(nvml_inventory.QUESTIONS) == set(sources)
