# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inventory` on nodes with GPUs of AMD, of both vendors, and of a vendor that fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.options import node_options
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.node import make_node


def gpuhook(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, list(arguments))


def test_table_of_whole_gpus() -> None:
    driver, empty, header, *rows = gpuhook(
        "inventory", "--inventory", "mi300x8"
    ).stdout.splitlines()
    assert (driver, empty) == ("Driver amdgpu 6.16.13, kernel 6.8.0-79-generic", "")
    names = "GPU NAME UUID BUS-ID GFX CUS MEMORY NUMA MODE DEVICES RENDER STATE"
    assert " ".join(header.split()) == names
    assert len(rows) == 8
    assert rows[1].split() == [
        "1", "AMD", "Instinct", "MI300X", "OAM", "GPU-08daa5c1b0cf62ec", "0000:27:00.0", "gfx942",
        "304", "196592", "MiB", "0", "SPX/NPS1", "1", "renderD136", "ok",
    ]  # fmt: skip


def test_table_of_partitions() -> None:
    """Partitions have their own table, with the names by which a container can request them."""
    _, gpus, partitions = gpuhook("inventory", "--inventory", "mi300x-cpx").stdout.split("\n\n")
    assert "CPX/NPS4  8-15 " in gpus.splitlines()[2]
    header, *rows = partitions.splitlines()
    assert header.split() == [
        "DEVICE",
        "PARTITION",
        "ID",
        "RENDER",
        "CARD",
        "XCCS",
        "CUS",
        "MEMORY",
    ]
    assert len(rows) == 64
    assert rows[9].split() == [
        "9", "1:1", "amdgpu_xcp_7", "renderD137", "card10", "1", "38", "24574", "MiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        ("radeon", ["GPU-08da81c12ef81b5d", "0000:0e:00.0"]),
        ("mixed", [
            "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913", "GPU-08da41c12ef81b5d",
            "GPU-08da61c1b0cf62ec",
        ]),
    ],
)  # fmt: skip
def test_names(profile: str, names: list[str]) -> None:
    """A GPU without a unique id has its PCI address."""
    assert gpuhook("inventory", "--inventory", profile, "-o", "name").stdout.split() == names


def test_names_of_partitions() -> None:
    names = gpuhook("inventory", "--inventory", "mi300x-cpx", "-o", "name").stdout.split()
    assert (len(names), names[:2]) == (64, ["0000:05:00.0", "amdgpu_xcp_0"])


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("profile", ["mi300x8", "mixed", "radeon", "mi300x-cpx"])
def test_dump_is_an_inventory(tmp_path: Path, profile: str, form: str) -> None:
    """The output of `-o` has each vendor's part, and is accepted by --inventory."""
    dumped = tmp_path / "node"
    shown = gpuhook("inventory", "--inventory", profile, "-o", form)
    dumped.write_text(shown.stdout, "utf-8")
    assert amd_dump.load(str(dumped)) == amd_dump.load(profile)
    assert dump_file.load(str(dumped)) == dump_file.load(profile)
    again = gpuhook("inventory", "--inventory", str(dumped), "-o", form)
    assert again.stdout == shown.stdout


def test_dump_without_nvidia_has_one_part(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, "radeon", real_nodes=True)
    shown = gpuhook("inventory", *tree.options, f"--driver-root={tmp_path}", "-o", "json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    document = json.loads(shown.stdout)
    assert sorted(document) == ["amd", "schema"]
    assert amd_dump.from_section(document["amd"]) == amd_dump.load("radeon")


def test_both_vendors_on_a_node(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4", real_nodes=False)
    amd_tree.build(tmp_path, "mixed", real_nodes=True)
    shown = gpuhook("inventory", *node.options, "-o", "json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert len(document["gpus"]) == 1
    assert amd_dump.from_section(document["amd"]).gpus == amd_dump.load("mixed").gpus
    table = gpuhook("inventory", *node.options).stdout
    assert [line for line in table.splitlines() if line.startswith("Driver ")] == [
        "Driver 580.95.05, kernel module 580.95.05, CUDA 13.0",
        "Driver amdgpu 6.16.13, kernel 6.8.0-79-generic",
    ]


def test_dev_root_of_the_other_vendor(tmp_path: Path) -> None:
    """The dev root of NVIDIA's driver container has no AMD nodes: those of the host apply."""
    tree = amd_tree.build(tmp_path, "radeon", real_nodes=True)
    (tmp_path / "driver/dev").mkdir(parents=True)
    options = [f"--host-root={tmp_path}", f"--dev-root={tmp_path}/driver", "-o", "json"]
    shown = gpuhook("inventory", *options)
    assert shown.stderr == ""
    nodes = amd_dump.from_section(json.loads(shown.stdout)["amd"]).device_nodes
    assert nodes == tree.node.device_nodes


def test_a_vendor_that_fails(tmp_path: Path) -> None:
    """NVIDIA's kernel module is loaded and its library is gone: AMD's GPUs are shown."""
    node = make_node(tmp_path, "t4", real_nodes=False)
    amd_tree.build(tmp_path, "mixed", real_nodes=True)
    for library in tmp_path.rglob("libnvidia-ml*"):
        library.unlink()
    shown = gpuhook("inventory", *node.options, "-o", "name")
    assert shown.exit_code == 0
    assert len(shown.stdout.split()) == 2
    assert shown.stderr.startswith("warning: NVIDIA: no libnvidia-ml.so.1 below the driver root")
    assert shown.stderr.count("\n") == 1


def test_amd_that_fails_leaves_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of AMD's files that fails is a warning on a node whose other driver answers."""

    def broken(host_root: str, dev_root: str) -> None:
        raise OSError(5, "Input/output error", host_root + dev_root)

    node = make_node(tmp_path, "t4", real_nodes=False)
    amd_tree.build(tmp_path, "mixed")
    monkeypatch.setattr("gpuhook.vendors.amd.inventory.sysfs_inventory.read", broken)
    shown = gpuhook("inventory", *node.options, "-o", "name")
    assert (shown.exit_code, len(shown.stdout.split())) == (0, 1)
    assert "warning: AMD: " in shown.stderr
    assert "Input/output error" in shown.stderr


def test_process_that_reads_amds_files_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is that of a driver without a library."""
    amd_tree.build(tmp_path, "mi300x8")
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(AmdVendor, "read_inventory", lambda *_: os._exit(3))
    roots = (f"--host-root={tmp_path}", f"--driver-root={tmp_path}/none")
    shown = gpuhook("inventory", *roots)
    assert shown.exit_code == 1
    assert "cannot read the AMD GPUs: its process has exited" in shown.stderr


def test_warnings(tmp_path: Path) -> None:
    """What the reader may not see is a warning that names the missing privilege."""
    tree = amd_tree.build(tmp_path, "mi300x8", odd=Oddities(is_denied=True))
    shown = gpuhook("inventory", *tree.options, f"--driver-root={tmp_path}")
    assert "allow rw of their render nodes (226:*)" in shown.stderr
    assert shown.stdout.count("196592 MiB") == 8


def test_lost_gpu(tmp_path: Path) -> None:
    odd = Oddities(without_kfd=frozenset({"0000:05:00.0"}))
    tree = amd_tree.build(tmp_path, "mi300x8", odd=odd)
    rows = gpuhook("inventory", *tree.options, f"--driver-root={tmp_path}").stdout.splitlines()[3:]
    assert "LOST: KFD does not list it" in rows[0]
    assert rows[0].split("LOST")[0].split()[-2:] == ["-", "-"]
    assert all(row.rstrip().endswith("ok") for row in rows[1:])


def test_completion_has_all_profiles() -> None:
    (option,) = node_options.inventory(lambda: None).__click_params__  # type: ignore[attr-defined]
    found = option.shell_complete(click.Context(main), "mi")
    assert [one.value for one in found] == ["mi300x-cpx", "mi300x8", "mixed"]


def test_debug_logs_each_vendor() -> None:
    shown = gpuhook("--debug", "--log-format", "json", "inventory", "--inventory", "mixed")
    lines = [json.loads(line) for line in shown.stderr.splitlines()]
    assert [(line["event"], line["gpus"]) for line in lines] == [("node read", 1), ("node read", 2)]
    assert lines[1]["token"].startswith("generation=4,")
