# SPDX-License-Identifier: Apache-2.0
"""`gpuhook system` on simulated nodes: device nodes, links, modules, and hostile links."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.vendors.nvidia.system import kernel_modules
from tests.simulated.node import SimulatedNode, make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "gpuhook/schemas/system.json").read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GPUHOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "none.yaml"))


def call(node: SimulatedNode, *arguments: str) -> Result:
    options = node.options
    if "load-kernel-modules" in arguments:  # which has no option --dev-root
        options = [one for one in options if not one.startswith("--dev-root")]
    return CliRunner().invoke(main, ["system", *arguments, *options], prog_name="gpuhook")


def steps(node: SimulatedNode, *arguments: str) -> list[dict[str, Any]]:
    """Return the steps of a successful call."""
    done = call(node, *arguments, "-o", "json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    found: list[dict[str, Any]] = document["steps"]
    return found


def devices(node: SimulatedNode) -> dict[str, tuple[int, int, int]]:
    """Return path -> major, minor and mode of the driver's character devices."""
    found = {}
    for directory, _, names in os.walk(f"{node.dev_root}/dev"):
        for name in names:
            status = os.lstat(path := os.path.join(directory, name))
            if stat.S_ISCHR(status.st_mode) and "nvidia" in name:
                inside = path.removeprefix(node.dev_root.rstrip("/"))
                numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
                found[inside] = (*numbers, stat.S_IMODE(status.st_mode))
    return found


def clear(node: SimulatedNode) -> None:
    shutil.rmtree(f"{node.dev_root}/dev")
    os.mkdir(f"{node.dev_root}/dev")


@pytest.mark.parametrize("profile", ["t4", "h100x8", "a100-mig"])
def test_missing_nodes_are_created(profile: str, tmp_path: Path) -> None:
    """They get the numbers that the driver's own tools gave; a second call changes nothing."""
    node = make_node(tmp_path, profile)
    before = devices(node)
    assert before
    clear(node)
    dry = steps(node, "create-device-nodes", "--dry-run")
    assert devices(node) == {}
    made = steps(node, "create-device-nodes")
    assert dry == made
    assert {step["action"] for step in made} == {"make"}
    after = devices(node)
    extra = {"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}  # config, monitor
    assert {path: after.get(path) for path in before} == before
    assert set(after) - set(before) <= extra | {"/dev/nvidia-modeset"}
    assert (extra <= set(after)) == (profile == "a100-mig")
    again = steps(node, "create-device-nodes")
    assert {step["action"] for step in again} == {"keep"}
    assert devices(node) == after


def test_control_devices_alone(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4")
    clear(node)
    steps(node, "create-device-nodes", "--control-devices")
    names = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
    assert sorted(devices(node)) == [f"/dev/{name}" for name in names]


def test_mode_and_owner_are_those_of_the_driver_parameters(tmp_path: Path) -> None:
    """Except for the nodes of nvidia-uvm, which is another module."""
    node = make_node(tmp_path, "t4")
    clear(node)
    params = Path(node.host_root, "proc/driver/nvidia/params")
    params.write_text("DeviceFileUID: 7\nDeviceFileGID: 8\nDeviceFileMode: 432\n")
    steps(node, "create-device-nodes")
    status = os.stat(f"{node.dev_root}/dev/nvidia0")
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (7, 8, 0o660)
    assert devices(node)["/dev/nvidia-uvm"][2] == 0o666


def test_wrong_node_is_refused_or_replaced(tmp_path: Path) -> None:
    """A refused node prevents all changes; --replace replaces all but a directory."""
    node = make_node(tmp_path, "t4")
    right = devices(node)
    dev = Path(node.dev_root, "dev")
    (dev / "nvidia-uvm").unlink()
    os.mknod(dev / "nvidia-uvm", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (dev / "nvidia-uvm-tools").unlink()
    (dev / "nvidia-uvm-tools").symlink_to("/dev/zero")
    (dev / "nvidia0").unlink()
    failed = call(node, "create-device-nodes")
    assert failed.exit_code == 1
    assert "Error GH1535" in failed.stderr
    assert "it is the character device 1:3 with mode " in failed.stderr
    assert not (dev / "nvidia0").exists()
    dry = call(node, "create-device-nodes", "--dry-run", "-o", "json")
    assert dry.exit_code == 1
    actions = {s["what"]: s["action"] for s in json.loads(dry.stdout)["steps"]}
    assert actions[str(dev / "nvidia-uvm")] == actions[str(dev / "nvidia-uvm-tools")] == "refuse"
    steps(node, "create-device-nodes", "--replace")
    assert {path: devices(node)[path] for path in right} == right
    (dev / "nvidia0").unlink()
    (dev / "nvidia0").mkdir()
    refused = call(node, "create-device-nodes", "--replace")
    assert (refused.exit_code, "it is a directory" in refused.stderr) == (1, True)
    assert (dev / "nvidia0").is_dir()


def test_module_that_is_not_loaded_is_reported(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4")
    clear(node)
    numbers = Path(node.host_root, "proc/devices")
    lines = numbers.read_text().splitlines()
    numbers.write_text("\n".join(line for line in lines if "uvm" not in line) + "\n")
    done = call(node, "create-device-nodes", "-o", "json")
    assert done.exit_code == 0
    assert "nvidia-uvm is skipped: /proc/devices has no nvidia-uvm" in done.stderr
    assert "/dev/nvidia-uvm" not in devices(node)
    assert "/dev/nvidia0" in devices(node)
    table = call(node, "create-device-nodes", "--dry-run")
    assert table.stdout.count("/proc/devices has no nvidia-uvm:") == 2
    assert "/proc/devices" not in table.stderr
    assert "would be changed (dry run)" in table.stderr
    assert "gpuhook system load-kernel-modules" in table.stderr


def test_links_are_resolved_inside_the_root(tmp_path: Path) -> None:
    """Absolute links mean the tree's own root, and those with `..` end at it."""
    node = make_node(tmp_path / "node", "a100-mig")
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(f"{node.dev_root}/dev")
    os.symlink(f"/../../{outside}", f"{node.dev_root}/dev")
    failed = call(node, "create-device-nodes")
    assert failed.exit_code == 1
    inner = Path(f"{node.dev_root}{outside}")
    inner.mkdir(parents=True)
    steps(node, "create-device-nodes")
    assert list(outside.iterdir()) == []
    assert (inner / "nvidiactl").is_char_device()
    assert (inner / "nvidia-caps/nvidia-cap1").is_char_device()
    steps(node, "create-dev-char-symlinks")
    assert list(outside.iterdir()) == []
    assert (inner / "char/195:0").is_symlink()


def links(node: SimulatedNode) -> dict[str, str]:
    place = Path(node.dev_root, "dev/char")
    return {one.name: os.readlink(one) for one in place.iterdir() if one.is_symlink()}


def test_links_name_each_device_node(tmp_path: Path) -> None:
    """Control nodes, GPUs, capabilities and channels; each link leads to the device of its name."""
    node = make_node(tmp_path, "a100-mig")
    channels = Path(node.dev_root, "dev/nvidia-caps-imex-channels")
    channels.mkdir()
    os.mknod(channels / "channel0", 0o666 | stat.S_IFCHR, os.makedev(234, 0))
    shutil.rmtree(f"{node.dev_root}/dev/char", ignore_errors=True)
    dry = steps(node, "create-dev-char-symlinks", "--dry-run")
    assert not Path(node.dev_root, "dev/char").exists()
    assert steps(node, "create-dev-char-symlinks") == dry
    found = links(node)
    numbers = {f"{major}:{minor}" for major, minor, _ in devices(node).values()} | {"234:0"}
    assert set(found) == numbers
    for name, target in found.items():
        status = os.stat(os.path.join(node.dev_root, "dev/char", target))
        assert name == f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    assert found["234:0"] == "../nvidia-caps-imex-channels/channel0"
    assert {one["action"] for one in steps(node, "create-dev-char-symlinks")} == {"keep"}


def test_create_all_links_without_nodes(tmp_path: Path) -> None:
    """--create-all needs no node: it uses the kernel's tables."""
    node = make_node(tmp_path, "a100-mig")
    there = {f"{major}:{minor}" for major, minor, _ in devices(node).values()}
    clear(node)
    assert steps(node, "create-dev-char-symlinks") == []
    steps(node, "create-dev-char-symlinks", "--create-all")
    minors = Path(node.host_root, "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    gpus = {line.split("/")[0] for line in minors if line.startswith("gpu")}
    assert there <= set(links(node))
    assert len([name for name in links(node).values() if "nvidia-cap" in name]) == len(minors)
    assert gpus


def test_nodes_and_links_in_one_call(tmp_path: Path) -> None:
    """A dry run prints the same steps, also for nodes that it has not created."""
    node = make_node(tmp_path, "t4")
    clear(node)
    dry = steps(node, "create-dev-char-symlinks", "--create-device-nodes", "--dry-run")
    assert steps(node, "create-dev-char-symlinks", "--create-device-nodes") == dry
    assert links(node)["195:255"] == "../nvidiactl"


def test_wrong_link_is_refused_or_replaced(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4")
    char = Path(node.dev_root, "dev/char")
    shutil.rmtree(char, ignore_errors=True)
    char.mkdir()
    (char / "195:0").symlink_to("../nvidiactl")
    (char / "195:255").symlink_to("/dev/nvidiactl")  # another path to the same node: kept
    failed = call(node, "create-dev-char-symlinks")
    assert failed.exit_code == 1
    assert "it is a link to ../nvidiactl, but should point to ../nvidia0" in failed.stderr
    assert len(links(node)) == 2
    found = steps(node, "create-dev-char-symlinks", "--replace")
    actions = {os.path.basename(one["what"]): one["action"] for one in found}
    assert (actions["195:0"], actions["195:255"]) == ("replace", "keep")
    assert links(node)["195:0"] == "../nvidia0"


MODPROBE = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *nvidia-fs) echo "modprobe: FATAL: Module $4 not found" >&2; exit 1;; esac
"""


@pytest.fixture
def modprobe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the log of a modprobe that loads nothing."""
    programs = tmp_path / "programs"
    programs.mkdir()
    log = tmp_path / "modprobe.log"
    (programs / "modprobe").write_text(MODPROBE.format(log=log))
    (programs / "modprobe").chmod(0o755)
    monkeypatch.setattr(kernel_modules, "_PATH", f"{programs}:/usr/bin:/bin")
    return log


def test_modules_are_loaded_in_order(tmp_path: Path, modprobe: Path) -> None:
    """With the driver root's modules; loaded ones are left alone."""
    node = make_node(tmp_path / "node", "t4")
    loaded = Path(node.host_root, "sys/module/nvidia")
    loaded.mkdir(parents=True, exist_ok=True)
    dry = steps(node, "load-kernel-modules", "--dry-run")
    assert not modprobe.exists()
    assert [one["action"] for one in dry] == ["keep", "load", "load"]
    assert steps(node, "load-kernel-modules") == dry
    root = node.driver_root
    assert modprobe.read_text() == f"-d {root} -- nvidia-uvm\n-d {root} -- nvidia-modeset\n"


def test_module_that_another_one_loads_needs_no_step(tmp_path: Path, modprobe: Path) -> None:
    """modprobe may load further modules of the list (softdep): these need no step."""
    node = make_node(tmp_path / "node", "t4")
    modules = Path(node.host_root, "sys/module")
    shutil.rmtree(modules, ignore_errors=True)
    program = tmp_path / "programs/modprobe"
    program.write_text(f"{program.read_text()}mkdir -p {modules}/nvidia {modules}/nvidia_uvm\n")
    done = steps(node, "load-kernel-modules")
    assert [one["action"] for one in done] == ["load", "keep", "load"]
    assert "nvidia-uvm" not in modprobe.read_text()


def test_module_that_cannot_be_loaded_is_a_fault(tmp_path: Path, modprobe: Path) -> None:
    node = make_node(tmp_path / "node", "t4")
    failed = call(node, "load-kernel-modules", "--module", "nvidia-fs")
    assert failed.exit_code == 1
    assert "Error GH1536: cannot load kernel module nvidia-fs: modprobe: FATAL" in (failed.stderr)
    assert call(node, "load-kernel-modules", "--module", "-x; y").exit_code == 2
    modprobe.unlink()


def test_missing_modprobe_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(tmp_path / "node", "t4")
    monkeypatch.setattr(kernel_modules, "_PATH", str(tmp_path / "nowhere"))
    failed = call(node, "load-kernel-modules")
    assert "there is no modprobe in" in failed.stderr


def test_created_nodes_are_found_by_generate_cdi(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a100-mig")
    clear(node)
    steps(node, "create-device-nodes")
    done = CliRunner().invoke(main, ["generate-cdi", *node.options], prog_name="gpuhook")
    assert done.exit_code == 0, done.stderr
    assert "nvidia-caps/nvidia-cap" in done.stdout
