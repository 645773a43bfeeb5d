# SPDX-License-Identifier: Apache-2.0
"""Stale specs, by each integration: they are generated again, or the container is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuhook.cdi import spec_file as spec_files
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, started, wrapped
from tests.contract.roots import Roots

GPUS = "proc/driver/nvidia/gpus"
INTEGRATIONS = ("runc", "crun", "runc-prestart", "podman-runtime")


@pytest.fixture
def own(node8: Installation, tmp_path: Path) -> Installation:
    """Return an installation on a node that the test may change."""
    made = installation(tmp_path / "own", "h100x8", node8.bindir)
    made.generate("--mode", "proc")
    return made


def host(made: Installation, path: str) -> Path:
    return Path(made.node.host_root, path)


def rebooted(made: Installation) -> str:
    host(made, "proc/sys/kernel/random/boot_id").write_text("another\n")
    return "boot"


def upgraded(made: Installation) -> str:
    library = next(f for f in made.node.node.files if f.soname == "libcuda.so.1")
    os.utime(library.host_path, ns=(1, 1))
    return "tree"


def new_uvm_major(made: Installation) -> str:
    devices = host(made, "proc/devices")
    old = made.node.node.majors["nvidia-uvm"]
    devices.write_text(devices.read_text().replace(f"{old} nvidia-uvm", "400 nvidia-uvm"))
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        path = Path(made.node.dev_root, "dev", name)
        minor = os.minor(path.stat().st_rdev)
        path.unlink()
        os.mknod(path, 0o20666, os.makedev(400, minor))
    return "majors"


def lost_gpu(made: Installation) -> str:
    shutil.rmtree(max(host(made, GPUS).iterdir()))
    return "gpus"


def replaced_root(made: Installation) -> str:
    root = Path(made.node.driver_root)
    shutil.copytree(root / "usr", root / "new", symlinks=True)
    shutil.rmtree(root / "usr")
    (root / "new").rename(root / "usr")
    return "tree"


CHANGES = (rebooted, upgraded, new_uvm_major, lost_gpu, replaced_root)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
def test_stale_spec_is_generated_again(
    integration: str,
    change: Callable[[Installation], str],
    own: Installation,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The container that needs the spec starts, with the current devices."""
    change(own)
    seen = Integrations(own, tmp_path).through(integration, root_of("debian"), ["/probe"], "2").view
    assert own.device(2) in seen.gpus()
    assert "unchanged" in own.gpuhook("refresh").stdout


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("integration", ["runc", "runc-prestart", "podman-cdi"])
def test_stale_spec_is_refused(
    integration: str,
    change: Callable[[Installation], str],
    own: Installation,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """With the setting "refuse", and always if an engine applies CDI: its hook refuses."""
    if integration != "podman-cdi":
        own.refuse_stale()
    before = own.spec.read_bytes()
    part = change(own)
    done = Integrations(own, tmp_path).through(integration, root_of("debian"), ["/probe"], "2")
    assert done.rc != 0
    messages = done.stderr + done.log
    assert "GH1120" in messages
    assert f"({part}: was " in messages
    assert "gpuhook refresh" in messages
    assert own.spec.read_bytes() == before


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_new_gpu_is_found_by_its_index(
    integration: str, own: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """No spec has the GPU yet: the request is resolved after the spec is generated."""
    removed = max(host(own, GPUS).iterdir())
    removed.rename(own.place / "gone")
    own.generate("--mode", "proc")
    assert "7" not in [d["name"] for d in spec_files.read(str(own.spec))["devices"]]
    (own.place / "gone").rename(removed)
    seen = Integrations(own, tmp_path).through(integration, root_of("debian"), ["/probe"], "7").view
    assert own.device(7) in seen.gpus()


def test_missing_spec_is_generated(own: Installation, bundle_of: Bundles) -> None:
    """The options of the earlier spec apply, if they are known."""
    own.spec.unlink()
    bundle = bundle_of(own.place / "root", ["/probe"], asks("1"))
    (own.place / "root").mkdir(exist_ok=True)
    done = own.edit(bundle)
    assert done.rc == 0, done.stderr
    assert own.spec.exists()


def test_recreated_mig_instances(node8: Installation, tmp_path: Path, root_of: Roots) -> None:
    """An index names another instance now: the container has the nodes of that one only."""
    own = installation(tmp_path / "own", "a100-mig", node8.bindir)
    own.generate("--mode", "proc", "--create-device-nodes")
    capabilities = host(own, "proc/driver/nvidia/capabilities/gpu0/mig")
    first, *others = sorted(capabilities.glob("gi*"), key=lambda path: int(path.name[2:]))
    second = spec_files.read(str(own.spec))["devices"]
    nodes = {d["name"]: [n["path"] for n in d["containerEdits"]["deviceNodes"]] for d in second}
    shutil.rmtree(first)
    assert others
    seen = Integrations(own, tmp_path).through("runc", root_of("debian"), ["/probe"], "0:0").view
    caps = {path for path in seen.gpus() if "nvidia-cap" in path}
    assert caps == {path for path in nodes["0:1"] if "nvidia-cap" in path}


def test_failed_refresh_is_refused_with_both_reasons(own: Installation, bundle_of: Bundles) -> None:
    """The error states that the spec is stale, and that NVML failed."""
    own.generate("--mode", "nvml")
    Path(own.node.nvml_profile).write_text("init 999\n")
    rebooted(own)
    (own.place / "root").mkdir()
    bundle = bundle_of(own.place / "root", ["/probe"], asks("1"))
    before = bundle.file.read_bytes()
    for _ in range(2):  # the second one reads what the first one recorded
        done = own.edit(bundle)
        assert done.rc != 0
        (error,) = [line for line in done.stderr.splitlines() if "error GH1120" in line]
        assert "`gpuhook refresh` did not help: GH1206: " in error
        assert "`gpuhook explain GH1206`" in done.stderr
        assert bundle.file.read_bytes() == before


def test_missing_driver_is_in_the_log(own: Installation, bundle_of: Bundles) -> None:
    """The engine shows one line of the log: it has both codes and both messages."""
    own.spec.unlink()
    shutil.rmtree(own.state / "generated")  # it records where the driver is
    (own.place / "root").mkdir()
    done = own.edit(bundle_of(own.place / "root", ["/probe"], asks("1")))
    assert done.rc != 0
    (entry,) = [json.loads(line) for line in done.log.splitlines()]
    assert "GH1104: " in entry["msg"]
    assert "`gpuhook refresh` did not help: GH1200: no libnvidia-ml.so.1" in entry["msg"]


@pytest.mark.parametrize("is_known", [True, False])
def test_hint_for_a_corrupt_spec(
    is_known: bool, own: Installation, bundle_of: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint restores the spec, whether gpuhook has recorded the file or not."""
    monkeypatch.setenv("GPUHOOK_DRIVER_ROOT", own.node.driver_root)
    if not is_known:
        shutil.rmtree(own.state / "generated")
    own.spec.write_text("cdiVersion: [", encoding="utf-8")
    (own.place / "root").mkdir()
    done = own.edit(bundle_of(own.place / "root", ["/probe"], asks("1")))
    assert "error GH1104" in done.stderr
    assert f"{own.spec} is broken" in done.stderr
    assert f"hint: restore or remove {own.spec}, then run `gpuhook refresh`" in done.stderr
    own.spec.unlink()
    assert "written" in own.gpuhook("refresh").stdout


def test_32_creates_at_once_refresh_once(
    own: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """All containers start; `gpuhook refresh` runs once."""
    (own.place / "root").mkdir()
    bundles = [bundle_of(own.place / "root", ["/probe"], asks("1")) for _ in range(32)]
    counted = tmp_path / "prefix/bin"
    shutil.copytree(own.bindir, counted, symlinks=True)
    real = counted / "gpuhook"
    real.rename(counted / "gpuhook.real")
    real.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexec {counted}/gpuhook.real "$@"\n')
    real.chmod(0o755)
    made = Installation(own.place, counted, own.node)
    assert made.edit(bundles[0]).rc == 0
    (tmp_path / "calls").unlink(missing_ok=True)
    rebooted(own)
    with ThreadPoolExecutor(32) as many:
        done = list(many.map(made.edit, bundles))
    assert [one.rc for one in done] == [0] * 32, done[0].stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls.count("refresh") == 1


def test_attach_generates_a_stale_spec(own: Installation, tmp_path: Path) -> None:
    """`attach --dry-run` only reports the stale spec."""
    with started(sleeping(tmp_path), own) as live:
        rebooted(own)
        dry = live.gpuhook("attach", "--device", "1", "--dry-run")
        assert "GH1120" in dry.stderr
        live.attach("1")
        assert own.device(1) in live.view().gpus()
        assert "unchanged" in own.gpuhook("refresh").stdout


def test_parallel_refreshes_write_once(own: Installation) -> None:
    rebooted(own)
    command = [str(own.bindir / "gpuhook"), "refresh", "-o", "json"]
    env = {**os.environ, **own.env}
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(4)
    ]
    states = [json.loads(one.communicate()[0])["specs"][0]["state"] for one in started]
    assert sorted(states) == ["unchanged"] * 3 + ["written"]


def test_removed_instance_of_a_running_container(node8: Installation, tmp_path: Path) -> None:
    """`inspect`, `repair` and `compare` report the instance that no longer exists."""
    own = installation(tmp_path / "own", "a100-mig", node8.bindir)
    capabilities = host(own, "proc/driver/nvidia/capabilities/gpu0/mig")
    first = min(capabilities.glob("gi*"), key=lambda path: int(path.name[2:]))
    with wrapped(sleeping(tmp_path, env=asks("0:0")), own) as live:
        assert "GH1123" not in live.gpuhook("inspect").stdout
        assert live.report("repair")["notes"] == []
        shutil.rmtree(first)
        shown = live.gpuhook("inspect").stdout
        assert (
            "/dev/nvidia-caps/nvidia-cap66, /dev/nvidia-caps/nvidia-cap67, whose GPU, MIG" in shown
        )
        (note,) = live.report("repair")["notes"]
        assert "whose GPU, MIG instance or partition is no longer on this node" in note
        compared = live.gpuhook("compare").stdout
        assert "GH1120: the CDI spec is stale: it no longer matches this host (mig: was" in compared


def test_removed_gpu_of_a_running_container(own: Installation, tmp_path: Path) -> None:
    """`inspect` and `doctor` report the node of the missing GPU only."""
    made = sleeping(tmp_path, env=asks("2,3"))
    with wrapped(made, own) as live:
        bus = str(own.gpu(2).pci_bus_id)[4:].lower()
        shutil.rmtree(host(own, GPUS) / bus)
        shown = live.gpuhook("inspect").stdout
        assert f"has {own.device(2)}, whose GPU" in shown
        root = f"--driver-root={own.node.driver_root}"
        doctor = own.gpuhook("doctor", root, "--checks", "driver.gpu,driver.bus,containers.pieces")
        assert doctor.rc == 1
        assert f"missing from the PCI bus: {own.device(2)} (used by {live.id})" in doctor.stdout
        assert "except of a missing GPU" in doctor.stdout


@pytest.mark.parametrize("privileged", [False, True])
def test_node_without_a_gpu_in_a_privileged_container(
    privileged: bool, own: Installation, tmp_path: Path
) -> None:
    """A privileged container has all nodes of the host: the node is not a loss."""
    made = sleeping(tmp_path)
    config = made.config()
    stray = {"type": "c", "major": 195, "minor": own.gpu(2).minor}
    rule = {"allow": True, "access": "rwm", **({} if privileged else stray)}
    config["linux"]["resources"] = {"devices": [{"allow": False, "access": "rwm"}, rule]}
    config["linux"]["devices"] = [{"path": own.device(2), **stray}]
    made.write(config)
    with started(made, own) as live:
        shutil.rmtree(host(own, GPUS) / str(own.gpu(2).pci_bus_id)[4:].lower())
        shown = live.gpuhook("inspect").stdout
    assert own.device(2) in shown
    assert ("GH1123" in shown) is not privileged
