# SPDX-License-Identifier: Apache-2.0
"""Mode csv: a spec of a Tegra system, with its GPU alone or with a discrete one."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.modes.tegra import csv_files, soc
from gpuhook.vendors.nvidia.modes.tegra.soc import Soc
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
from gpuhook.vendors.nvidia.warm import nvml_library
from tests.simulated import tegra_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
FILES = csv_files.DIRECTORY[1:]
THOR = Gpu(index=0, uuid="GPU-0", name="NVIDIA Thor", pci_bus_id="00000000:01:00.0")
CARD = Gpu(index=1, uuid="GPU-1", name="RTX PRO 6000", minor=1, pci_bus_id="00000003:01:00.0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a Jetson Orin."""
    tegra_node.make(tmp_path)
    return tmp_path


def describe(root: Path, choices: Choices | None = None, **options: object) -> Described:
    roots = discover.roots(str(root), None, str(root))
    chosen = replace(choices or Choices(), **options)  # type: ignore[arg-type]
    return mode_table.describe(mode_table.CSV, roots, chosen)


def names(found: Described) -> list[str]:
    return [device["name"] for device in found.spec["devices"]]


def nodes(found: Described, name: str) -> set[str]:
    (device,) = [one for one in found.spec["devices"] if one["name"] == name]
    return {node["path"] for node in device["containerEdits"].get("deviceNodes", ())}


def job(found: Described) -> hook_args.Jobs:
    (hook,) = found.spec["containerEdits"]["hooks"]
    return hook_args.of_hook(hook)


def refused(code: str, root: Path, choices: Choices | None = None, **place: object) -> str:
    with pytest.raises(GpuhookError) as caught:
        describe(root, choices, **place)
    assert caught.value.code == code
    return caught.value.message


def test_spec_of_an_orin(root: Path) -> None:
    found = describe(root)
    assert names(found) == ["0", "all", "csv-mounts-all"]
    assert nodes(found, "0") == nodes(found, "all") == set(tegra_node.NODES)
    done = job(found)
    assert done.whole
    assert (done.cuda_version, done.driver_version) == ("12.6", "540.4.0")
    assert done.cuda_compat == "/usr/local/cuda/compat_orin"
    assert done.libcuda == f"{root}{tegra_node.NVIDIA}/libcuda.so.1.1"
    assert "driver=540.4.0" in done.fingerprint
    assert found.node is None
    (warning,) = found.warnings
    assert warning.startswith("missing on this system: /dev/nvsciipc, ")


def test_further_files_are_one_device(root: Path) -> None:
    (device,) = [one for one in describe(root).spec["devices"] if one["name"] == "csv-mounts-all"]
    edits = device["containerEdits"]
    assert set(edits) == {"mounts", "hooks"}
    places = [mount["containerPath"] for mount in edits["mounts"]]
    assert places == [
        "/usr/src/jetson_multimedia_api",
        "/usr/local/cuda-12.6/targets/aarch64-linux/lib/libcudart.so.12.6.68",
    ]


def test_further_files_without_new_entries_are_no_device(root: Path) -> None:
    (root / FILES / "cuda.csv").write_text("dev, /dev/nvmap\ndev, /dev/gone\n")
    found = describe(root)
    assert names(found) == ["0", "all"]
    assert "missing on this system: /dev/gone" in found.warnings


def test_chosen_files_replace_the_others(root: Path) -> None:
    mine = root / "mine.csv"
    mine.write_text("dev, /dev/nvmap\nbad\n")
    found = describe(root, csv_files=(str(mine),))
    assert names(found) == ["0", "all"]
    assert nodes(found, "0") == {"/dev/nvmap"}
    mounts = found.spec["containerEdits"]["mounts"]
    assert [mount["containerPath"] for mount in mounts] == ["/etc/nv_tegra_release"]
    assert found.warnings == (f"{mine}, line 2: 'bad' is not `kind, path`; it is skipped",)
    assert "no-such.csv" in refused("GH1221", root, csv_files=(str(root / "no-such.csv"),))


def test_without_csv_files(root: Path) -> None:
    for name in ("devices.csv", "drivers.csv"):
        (root / FILES / name).unlink()
    assert str(root / FILES) in refused("GH1220", root)


def test_without_device_nodes(root: Path) -> None:
    (root / FILES / "devices.csv").write_text("dev, /dev/gone\n")
    message = refused("GH1222", root)
    assert f"{root / FILES}/devices.csv" in message
    assert "GPU 0 is omitted" in message


def test_empty_file_has_a_warning(root: Path) -> None:
    (root / FILES / "l4t.csv").write_text("# nothing\n")
    assert f"{root / FILES}/l4t.csv has no entries" in describe(root).warnings


def test_ignored_links_are_left_out(root: Path) -> None:
    link = f"{tegra_node.LIBRARIES}/libcuda.so"
    assert link in [path for _, path in job(describe(root)).links]
    found = describe(root, csv_ignore_patterns=("**/libcuda.so",))
    assert link not in [path for _, path in job(found).links]


@pytest.mark.parametrize(
    ("compatible", "option", "directory"),
    [
        (b"nvidia,tegra234\0", "", "/usr/local/cuda/compat_orin"),
        (b"nvidia,tegra264\0", "", "/usr/local/cuda/compat"),
        (None, "", "/usr/local/cuda/compat"),
        (b"nvidia,tegra234\0", "/opt/compat", "/opt/compat"),
    ],
)
def test_cuda_compat_directory_of_images(
    compatible: bytes | None, option: str, directory: str, root: Path
) -> None:
    file = root / "proc/device-tree/compatible"
    file.unlink()
    if compatible is not None:
        file.write_bytes(compatible)
    assert job(describe(root, csv_compat_root=option)).cuda_compat == directory


def test_relative_directory_is_refused(root: Path) -> None:
    assert "compat" in refused("GH1515", root, csv_compat_root="compat")


@pytest.mark.parametrize(
    ("release", "cuda"),
    [
        ("# R38 (release), REVISION: 2.0, GCID: 1", "13.0"),
        ("# R36 (release), REVISION: 4.3, GCID: 1", "12.6"),
        ("# R36 (release), REVISION: 3.0, GCID: 1", "12.2"),
        ("# R35 (release), REVISION: 4.1, GCID: 1", "11.4"),
        ("# R32 (release), REVISION: 7.4, GCID: 1", "10.2"),
        ("# R99 (release), REVISION: 1", ""),
        ("", ""),
        ("# R36 (release), REVISION:", "12.2"),
    ],
)
def test_cuda_version_of_the_release(release: str, cuda: str, root: Path) -> None:
    (root / "etc/nv_tegra_release").write_text(release + "\n")
    assert job(describe(root)).cuda_version == cuda


def test_release_is_the_driver_version_without_a_module(root: Path) -> None:
    (root / "sys/module/nvidia/version").unlink()
    assert "driver=R36.4.3" in job(describe(root)).fingerprint


def test_driver_root_and_dev_root_differ(root: Path, tmp_path: Path) -> None:
    """Device nodes are searched below the dev root, files below the driver's."""
    (tmp_path / "other").mkdir()
    (root / "dev").rename(tmp_path / "other/dev")
    roots = discover.roots(str(root), str(tmp_path / "other"), str(root))
    found = mode_table.describe(mode_table.CSV, roots, Choices())
    (device, *_) = found.spec["devices"]
    paths = [node["hostPath"] for node in device["containerEdits"]["deviceNodes"]]
    assert all(path.startswith(f"{tmp_path}/other/dev/") for path in paths)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("0",), ["0", "GPU-0", "all"]), (("gpu-1",), ["1", "GPU-1", "all"])],
)
def test_device_ids(
    ids: tuple[str, ...], expected: list[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    igx(root, monkeypatch)
    (root / FILES / "cuda.csv").unlink()
    assert names(describe(root, Choices(device_ids=ids))) == expected
    assert "0 (GPU-0), 1 (GPU-1)" in refused("GH1511", root, Choices(device_ids=("2",)))


def test_an_instance_is_no_device(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip of a Thor has MIG; the spec describes it as a whole only."""
    instance = MigInstance(index=0, uuid="MIG-0", profile="1g", gpu_instance=1, compute_instance=0)
    divided = replace(THOR, mig_mode="enabled", instances=(instance,))
    monkeypatch.setattr(soc, "ask", lambda _: Soc((divided,), "580.0", "13.0"))
    for name in ("0:0", "mig-0"):
        message = refused("GH1511", root, Choices(device_ids=(name,)))
        assert "0 (GPU-0)" in message
        assert "0:0" not in message.replace(name, "", 1)


def test_a_driver_whose_gpus_cannot_be_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions that NVML has reported before apply."""

    class Counting:
        def driver_version(self) -> str:
            return "581.1"

        def cuda_version(self) -> str:
            return "13.9"

        def gpus(self) -> tuple[Gpu, ...]:
            raise fault("GH1206", path="libnvidia-ml.so.1", reason="unknown")

    monkeypatch.setattr(nvml_library, "find", lambda *_, **__: "libnvidia-ml.so.1")
    monkeypatch.setattr(nvml_inventory, "opened", lambda *_: nullcontext(Counting()))
    found = soc.ask(discover.roots(str(root), None, str(root)))
    assert (found.driver, found.cuda, found.gpus) == ("581.1", "13.9", (Gpu(index=0),))


def igx(root: Path, monkeypatch: pytest.MonkeyPatch, card: Gpu = CARD) -> None:
    """Add a discrete GPU to the system."""
    monkeypatch.setattr(soc, "ask", lambda _: Soc((THOR, card), "580.0", "13.0"))
    (root / FILES / "devices.csv").write_text(
        "dev, /dev/nvidia[0-9]\ndev, /dev/nvidiactl\ndev, /dev/nvmap\n"
    )
    for minor in (1, 2):
        tegra_node.node(root, f"/dev/nvidia{minor}", (195, minor))


def test_discrete_gpu_has_its_own_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its minor's node and the control nodes, the chip all others in the files."""
    igx(root, monkeypatch)
    found = describe(root)
    own = {"/dev/nvidia0", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvmap"}
    assert nodes(found, "0") == nodes(found, "GPU-0") == own
    card = {"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-modeset"}
    assert nodes(found, "1") == nodes(found, "GPU-1") == card
    assert nodes(found, "all") == own | card


def test_chip_has_nvidia2_if_the_discrete_gpu_has_nvidia1(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    igx(root, monkeypatch)
    (root / FILES / "devices.csv").write_text("dev, /dev/nvidia0\ndev, /dev/nvidia1\n")
    assert nodes(describe(root), "0") == {"/dev/nvidia0", "/dev/nvidia2"}


def test_single_device_on_request(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes in the files are the first GPU's, whatever GPUs NVML reports."""
    igx(root, monkeypatch)
    found = describe(root, Choices(multiple_csv_devices=False))
    assert names(found) == ["0", "GPU-0", "all", "csv-mounts-all"]
    expected = {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvmap"}
    assert nodes(found, "0") == nodes(found, "all") == expected
    (root / FILES / "devices.csv").write_text("dev, /dev/gone\n")
    refused("GH1222", root, Choices(multiple_csv_devices=False))


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (Gpu(index=1, name="RTX", minor=None), "its minor number is unknown"),
        (Gpu(index=1, name="RTX", minor=1, mig_mode="enabled"), "it is in MIG mode"),
        (Gpu(index=1, name="RTX", minor=1, lost="XID 79"), "it is lost (XID 79)"),
        (Gpu(index=1, name="RTX", minor=7), "/dev/nvidia7: no such device node"),
    ],
)
def test_unusable_discrete_gpu_is_left_out(
    card: Gpu, reason: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    igx(root, monkeypatch, card)
    found = describe(root)
    assert names(found) == ["0", "GPU-0", "all", "csv-mounts-all"]
    assert any(
        line.startswith(f"GPU 1 is omitted from the spec: {reason}") for line in found.warnings
    )


def test_groups_of_device_nodes_are_optional(root: Path) -> None:
    os.chown(root / "dev/nvmap", 0, 44)
    (root / "dev/nvmap").chmod(0o660)

    def groups(choices: Choices) -> list[list[int] | None]:
        devices = describe(root, choices).spec["devices"]
        return [device["containerEdits"].get("additionalGids") for device in devices]

    assert groups(Choices()) == [[44], [44], None]
    assert groups(Choices(additional_gids=False)) == [None, None, None]


def test_without_hooks_libraries_are_bound(root: Path) -> None:
    """In the directory of LD_LIBRARY_PATH, which the spec sets once."""
    found = describe(root, Choices(hooks="none"))
    assert "hooks" not in found.spec["containerEdits"]
    assert any(
        entry.startswith("LD_LIBRARY_PATH=") for entry in found.spec["containerEdits"]["env"]
    )
    (extra,) = [one for one in found.spec["devices"] if one["name"] == "csv-mounts-all"]
    assert set(extra["containerEdits"]) == {"mounts"}


def test_circular_links_and_hostile_lines_end(root: Path) -> None:
    """Links in circles, links out of the root and endless patterns have no match."""
    tegra_node.link(root, "/usr/lib/circle", "circle")
    tegra_node.link(root, "/usr/lib/out", "../../../../../../../../../../etc/shadow")
    (root / FILES / "l4t.csv").write_text(
        "sym, /usr/lib/circle\nlib, /usr/lib/circle/x\nlib, /usr/lib/out\n"
        "lib, /*/*/*/*/*/*/*/*/*/*/none\n"
    )
    found = describe(root)
    assert "/usr/lib/circle" in found.warnings[-1]
    mounted = {mount["hostPath"] for mount in found.spec["containerEdits"]["mounts"]}
    assert all(path.startswith(f"{root}/") for path in mounted)
