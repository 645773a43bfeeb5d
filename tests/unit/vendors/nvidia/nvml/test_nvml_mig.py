# SPDX-License-Identifier: Apache-2.0
"""MIG devices as NVML reports them, with the real pynvml on a small real libnvidia-ml.so.1."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated import build, nvml_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance

A100 = dump_file.load("a100-mig")
PROFILE = nvml_profile.text(A100)


def reported_gpus(directory: Path, profile: str = PROFILE, **options: str) -> tuple[Gpu, ...]:
    """Return the GPUs that a stub with `profile` reports."""
    library = directory / "libnvidia-ml.so.580.95.05"
    library.unlink(missing_ok=True)  # it may still be mapped
    shutil.copy(build.nvml_stub(without=options.get("without", "")), library)
    (directory / "nvml-stub.profile").write_text(profile, encoding="utf-8")
    with nvml_inventory.opened(str(library)) as answering:
        return answering.gpus()


def expected_instances(gpu: Gpu) -> list[MigInstance]:
    """Return the instances of the profile's GPU with the facts that NVML has."""
    unknown = {"gpu_instance_minor": None, "compute_instance_minor": None}
    return [replace(one, **unknown) for one in gpu.instances]  # type: ignore[arg-type] # None is


def lines(*, but: str, instead: str = "") -> str:
    """Return the stub's profile with each line that begins with `but` replaced."""
    kept = (instead if line.startswith(but) else line for line in PROFILE.splitlines())
    return "\n".join(kept) + "\n"


def of_instance(gpu: int, index: int, line: str) -> str:
    """Return the stub's profile with an additional line for one MIG device."""
    parts = PROFILE.split("gpu\n")
    head = f"instance {index}\n"
    assert head in parts[gpu + 1]
    parts[gpu + 1] = parts[gpu + 1].replace(head, head + line + "\n")
    return "gpu\n".join(parts)


def test_every_instance_has_all_its_facts(tmp_path: Path) -> None:
    """Every MIG device has its own index; missing indices are skipped."""
    gpus = reported_gpus(tmp_path)
    assert [list(gpu.instances) for gpu in gpus] == [expected_instances(gpu) for gpu in A100.gpus]
    assert [one.index for one in gpus[1].instances] == [0, 1, 2, 4]
    assert [gpu.mig_mode for gpu in gpus] == ["enabled", "enabled", "disabled"]


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB", "A100 MIG", ""])
def test_profile_without_a_name_of_the_device(tmp_path: Path, name: str) -> None:
    """Without NVML's name of a MIG device, its profile is composed of its attributes."""
    gpus = reported_gpus(tmp_path, lines(but="name ", instead=f"name {name}"))
    assert [[one.profile for one in gpu.instances] for gpu in gpus] == [
        ["1g.5gb"] * 7,
        ["3g.20gb", "1c.2g.10gb", "1c.2g.10gb", "1g.5gb+me"],
        [],
    ]
    assert {one.has_graphics for gpu in gpus for one in gpu.instances} == {False}


@pytest.mark.parametrize(
    ("profile", "attributes"), [(7, "+me"), (0xA, "+gfx"), (0xD, "-me"), (0xF, "+me.all"), (9, "")]
)
def test_profile_by_its_number(tmp_path: Path, profile: int, attributes: str) -> None:
    """If profiles have no names, their number implies the attributes."""
    text = lines(but="name ").replace("profile 0 19 MIG 1g.5gb", f"profile {profile} 19 ?")
    (found, *_) = reported_gpus(tmp_path, text)
    assert {one.profile for one in found.instances} == {f"1g.5gb{attributes}"}
    assert {one.has_graphics for one in found.instances} == {attributes == "+gfx"}


def test_old_library_with_the_first_attributes(tmp_path: Path) -> None:
    """If the attributes have no slices, those in the device's name are used."""
    gpu = reported_gpus(tmp_path, without="PROFILE_NAMES")[1]
    assert list(gpu.instances) == expected_instances(A100.gpus[1])
    gpu = reported_gpus(tmp_path, lines(but="name "), without="PROFILE_NAMES")[1]
    assert [(one.profile, one.gpu_slices) for one in gpu.instances] == [(None, None)] * 4
    assert [one.multiprocessors for one in gpu.instances] == [42, 14, 14, 14]


def test_library_without_mig(tmp_path: Path) -> None:
    """A library with the mode and without MIG devices reports none, and all other facts."""
    gpus = reported_gpus(tmp_path, without="MIG")
    assert [gpu.instances for gpu in gpus] == [(), (), ()]
    assert gpus[0].mig_mode == "enabled"
    assert gpus[0].lost is None


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("fail attributes 3", {"multiprocessors", "copy_engines", "decoders", "encoders"}),
        ("fail memory_bytes 3", set()),
        ("fail name 3", set()),
        ("fail profile 3", {"profile_id", "memory_start", "memory_slices"}),
    ],
)
def test_failing_calls_leave_facts_unknown(tmp_path: Path, line: str, facts: set[str]) -> None:
    """Another call may have the fact; the other facts are not affected."""
    gpus = reported_gpus(tmp_path, of_instance(0, 3, line))
    instance = gpus[0].instances[3]
    known = expected_instances(A100.gpus[0])[3]
    lacking = {n for n in known.__slots__ if getattr(instance, n) != getattr(known, n)}
    assert lacking == facts | ({"jpegs", "ofas"} if "decoders" in facts else set())
    assert all(getattr(instance, name) is None for name in lacking)
    assert len(gpus[0].instances) == 7


def test_instance_with_too_few_facts_has_no_profile(tmp_path: Path) -> None:
    """Without name and attributes, or name and profile."""
    for question in ("attributes", "profile"):
        text = of_instance(1, 4, f"fail name 3\nfail {question} 13")
        instance = reported_gpus(tmp_path, text)[1].instances[3]
        assert (instance.profile, instance.has_graphics) == (None, None)
        assert instance.memory_bytes == 4864 * 1024**2


@pytest.mark.parametrize("line", ["fail instance 6", "fail instance 2", "fail ids 6"])
def test_instance_that_is_removed_meanwhile(tmp_path: Path, line: str) -> None:
    """Its index is missing, and the others remain."""
    gpus = reported_gpus(tmp_path, of_instance(0, 2, line))
    assert [one.index for one in gpus[0].instances] == [0, 1, 3, 4, 5, 6]
    assert len(gpus[1].instances) == 4


def test_instance_without_a_uuid_has_a_legacy_one(tmp_path: Path) -> None:
    """If NVML has no UUID for a MIG device, it has that of old drivers."""
    instance = reported_gpus(tmp_path, of_instance(1, 2, "fail uuid 3"))[1].instances[2]
    assert instance.uuid == f"MIG-{A100.gpus[1].uuid}/3/1"


@pytest.mark.parametrize("answered", [9, 10, 12, 20, 30, 50])
def test_gpu_that_is_lost_among_its_instances(tmp_path: Path, answered: int) -> None:
    """It is lost, and the next GPU is not."""
    text = PROFILE.replace("gpu\n", f"gpu\nlost_after {answered}\n", 1)
    first, second, _ = reported_gpus(tmp_path, text)
    assert first.lost == "fallen off the bus or otherwise inaccessible"
    assert first.uuid == A100.gpus[0].uuid
    assert first.instances == ()
    assert second.lost is None
    assert len(second.instances) == 4
