# SPDX-License-Identifier: Apache-2.0
"""The plugin's CDI specs: their content, and the changes after which they are written."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi import validate
from gpuhook.device_plugin.allocate import plugin_specs
from gpuhook.device_plugin.allocate.allocation_context import Specs
from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, DeviceSpec
from gpuhook.device_plugin.allocate.host_paths import places
from gpuhook.device_plugin.allocate.plugin_specs import Hook
from gpuhook.device_plugin.config.configuration import Flags, PluginFlags
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.plugin import nvidia_part
from tests.simulated.node import make_node

VENDOR = "k8s.device-plugin.nvidia.com"
GPU = f"{VENDOR}-gpu.json"
OURS = Hook("/usr/bin/gpuhook-hook")
NONE = Hook(None, "the host has no hook")
GDR = AuxiliaryDevice(
    "gdrcopy", {"all": (DeviceSpec("/dev/gdrdrv", "/srv/dev/gdrdrv"),)}, "NVIDIA_GDRCOPY"
)
GDS = AuxiliaryDevice(
    "gds",
    {"all": (DeviceSpec("/dev/nvidia-fs0", "/dev/nvidia-fs0"),)},
    "NVIDIA_GDS",
    (AllocatedMount("/run/udev", "/run/udev"),),
)


@pytest.fixture(scope="module")
def h100() -> Node:
    return dump_file.load("h100x8")


def update(
    node: Node, directory: Path, *extras: AuxiliaryDevice, hook: Hook = OURS, **more: Any
) -> Specs:
    part = nvidia_part.part(node)
    return plugin_specs.update(part, (), extras, hook, directory=str(directory), **more)


def read(directory: Path, name: str = GPU) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((directory / name).read_text(encoding="utf-8"))
    validate.check(document, name)
    return document


def test_specs_describe_gpus_by_uuid_and_extras_separately(h100: Node, tmp_path: Path) -> None:
    """All specs are valid."""
    specs = update(h100, tmp_path / "cdi", GDR, GDS)
    document = read(tmp_path / "cdi")
    assert document["kind"] == f"{VENDOR}/gpu"
    assert document["cdiVersion"] == "0.5.0"
    assert [device["name"] for device in document["devices"]] == [g.uuid for g in h100.gpus]
    assert specs.names == {
        *(f"{VENDOR}/gpu={gpu.uuid}" for gpu in h100.gpus),
        f"{VENDOR}/gdrcopy=all",
        f"{VENDOR}/gds=all",
    }
    assert (specs.trouble, specs.warnings) == ("", ())
    (gdr,) = read(tmp_path / "cdi", f"{VENDOR}-gdrcopy.json")["devices"]
    node = {"path": "/dev/gdrdrv", "hostPath": "/srv/dev/gdrdrv", "permissions": "rw"}
    assert gdr == {"name": "all", "containerEdits": {"deviceNodes": [node]}}
    (gds,) = read(tmp_path / "cdi", f"{VENDOR}-gds.json")["devices"]
    assert gds["containerEdits"]["mounts"][0]["containerPath"] == "/run/udev"
    assert {Path(path).name for path in specs.written} == set(os.listdir(tmp_path / "cdi"))


def test_only_changed_specs_are_written(h100: Node, tmp_path: Path) -> None:
    """A changed fingerprint or GPU, and a missing or malformed file cause a write."""
    path = str(tmp_path / GPU)
    assert path in update(h100, tmp_path, GDR).written
    before = os.stat(path)
    assert update(h100, tmp_path, GDR).written == ()
    assert os.stat(path) == before
    assert update(replace(h100, fingerprint="boot=x"), tmp_path, GDR).written == (path,)
    assert os.stat(path).st_ino != before.st_ino
    fewer = replace(h100, fingerprint="boot=x", gpus=h100.gpus[:4])
    assert update(fewer, tmp_path, GDR).written == (path,)
    assert len(read(tmp_path)["devices"]) == 4
    for damage in (os.unlink, lambda p: Path(p).write_text("{", encoding="utf-8")):
        damage(path)
        assert update(fewer, tmp_path, GDR).written == (path,)
        assert len(read(tmp_path)["devices"]) == 4


def test_lost_gpu_is_omitted_with_a_warning(tmp_path: Path) -> None:
    node = dump_file.load("lost-gpu")
    specs = update(node, tmp_path)
    assert len(specs.names) == 3
    assert any("GPU 2" in warning for warning in specs.warnings)


def test_failed_update_has_a_reason_and_keeps_the_specs(h100: Node, tmp_path: Path) -> None:
    """The driver is incomplete, the node has no GPUs, or the directory is a file."""
    update(h100, tmp_path, GDR)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    bare = replace(h100, files=(), links=(), files_trouble="no libcuda.so")
    assert update(bare, tmp_path).trouble == "no libcuda.so"
    assert update(replace(h100, gpus=()), tmp_path).trouble
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept
    (tmp_path / "file").touch()
    failed = update(h100, tmp_path / "file")
    assert str(tmp_path / "file") in failed.trouble
    assert failed.names == frozenset()


def test_failed_spec_of_an_extra_keeps_the_others(h100: Node, tmp_path: Path) -> None:
    (tmp_path / f"{VENDOR}-gdrcopy.json").mkdir()
    specs = update(h100, tmp_path, GDR, GDS)
    assert f"{VENDOR}/gds=all" in specs.names
    assert f"{VENDOR}/gdrcopy=all" not in specs.names
    assert any("gdrcopy.json" in warning for warning in specs.warnings)


def test_missing_hook_is_omitted_with_a_warning(h100: Node, tmp_path: Path) -> None:
    specs = update(h100, tmp_path, hook=NONE)
    assert "hooks" not in read(tmp_path)["containerEdits"]
    assert NONE.warning in specs.warnings
    update(h100, tmp_path)
    (hook,) = read(tmp_path)["containerEdits"]["hooks"]
    assert hook["path"] == OURS.path


def test_hook_is_the_first_one_found_on_the_host(tmp_path: Path) -> None:
    """Links are resolved inside the root of the host."""
    root = tmp_path / "driver-root"

    def hook_for(path: str | None = None, driver_root: str = "/") -> Hook:
        plugin = PluginFlags(cdi_hook_path=path, container_driver_root=str(root))
        return plugin_specs.hook(Flags(driver_root=driver_root, plugin=plugin))

    (root / "usr/bin").mkdir(parents=True)
    (root / "opt").mkdir()
    assert hook_for().path is None
    assert "has no /usr/bin/gpuhook-hook" in hook_for().warning
    (root / "opt/hook").touch(0o755)
    (root / "usr/bin/gpuhook-hook").symlink_to("/opt/hook")
    assert hook_for() == Hook("/usr/bin/gpuhook-hook")
    other = "/run/nvidia/driver"  # the mounted directory has no programs of the host
    assert "cannot be seen" in hook_for(driver_root=other).warning
    for path in ("/opt/gpuhook/bin/gpuhook-hook", "/usr/bin/gpuhook-hook"):
        assert hook_for(path, driver_root=other) == Hook(path)
    assert hook_for("/usr/bin/nvidia-ctk", driver_root=other).path is None
    assert "is not gpuhook-hook" in hook_for("/usr/bin/nvidia-ctk").warning
    (root / "opt/hook").chmod(0o644)
    assert hook_for().path is None
    (root / "opt/gpuhook/bin").mkdir(parents=True)
    (root / "opt/gpuhook/bin/gpuhook-hook").touch(0o755)  # the path of `gpuhook install`
    assert hook_for() == Hook("/opt/gpuhook/bin/gpuhook-hook")
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/gpuhook-hook").touch(0o755)
    assert hook_for() == Hook("/usr/local/bin/gpuhook-hook")
    assert hook_for("/opt/gpuhook-hook").path is None  # only the configured path is used


def test_hook_below_a_hidden_directory(tmp_path: Path) -> None:
    """OSTree's /opt is a link to /var/opt, and the chart hides /var from the plugin."""
    root = tmp_path / "driver-root"
    (root / "var").mkdir(parents=True)
    (root / "opt").symlink_to("var/opt")

    def hook_for(path: str | None) -> Hook:
        plugin = PluginFlags(cdi_hook_path=path, container_driver_root=str(root))
        return plugin_specs.hook(Flags(driver_root="/", plugin=plugin))

    path = "/opt/gpuhook/bin/gpuhook-hook"
    assert hook_for(path) == Hook(path)
    assert hook_for("/var/lib/gpuhook/bin/gpuhook-hook").path
    assert hook_for("/usr/bin/gpuhook-hook").path is None
    assert f"the host's {path} cannot be seen" in hook_for(None).warning
    (root / "var/opt").mkdir()
    assert hook_for(path).path is None


def test_specs_of_a_container_have_host_paths(tmp_path: Path) -> None:
    simulated = make_node(tmp_path / "node", "t4", real_nodes=False)
    plugin = PluginFlags(container_driver_root=simulated.driver_root)
    where = places(Flags(driver_root="/run/nvidia/driver", plugin=plugin), simulated.host_root)
    seen = discover.node(
        discover.Roots(where.driver, where.dev, simulated.host_root), require_nodes=False
    )
    host_node = nvidia_part.at_host(
        replace(seen, device_nodes=dump_file.load("t4").device_nodes), where
    )
    update(host_node, tmp_path / "cdi", hook=Hook("/opt/gpuhook-hook"))
    text = (tmp_path / "cdi" / GPU).read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    edits = read(tmp_path / "cdi")["containerEdits"]
    assert all(m["hostPath"].startswith("/run/nvidia/driver/") for m in edits["mounts"])
    arguments = edits["hooks"][0]["args"]
    libcuda = arguments[arguments.index("--libcuda") + 1]
    assert libcuda.startswith("/run/nvidia/driver/usr/lib/")
    assert arguments[arguments.index("--fingerprint") + 1] == seen.fingerprint


def test_incomplete_driver_has_no_files_and_a_reason(tmp_path: Path) -> None:
    simulated = make_node(tmp_path, "t4", real_nodes=False)
    roots = discover.Roots(simulated.driver_root, simulated.dev_root, simulated.host_root)

    def discover_node() -> Node:
        return discover.node(roots, require_nodes=False, require_files=False)

    whole = discover_node()
    assert whole.files_trouble == ""
    (libcuda,) = [f.host_path for f in whole.files if f.soname == "libcuda.so.1"]
    shutil.move(libcuda, tmp_path / "kept")
    broken = discover_node()
    assert broken.gpus == whole.gpus
    assert (broken.files, broken.links, broken.library_dirs) == ((), (), ())
    assert "libcuda" in broken.files_trouble


def test_specs_of_a_dump_are_not_written(
    h100: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    specs = plugin_specs.update(nvidia_part.part(h100), (), (), NONE, directory=None)
    assert f"{VENDOR}/gpu={h100.gpus[0].uuid}" in specs.names
    assert specs.written == ()
    assert list(tmp_path.iterdir()) == []
