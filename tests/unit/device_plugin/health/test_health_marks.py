# SPDX-License-Identifier: Apache-2.0
"""Marks on disk, the evidence of a node, and `gpuhook health`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health import health_marks
from gpuhook.device_plugin.health import recovery_evidence as health_evidence
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import Evidence, HealthMark
from gpuhook.device_plugin.health.nvml_watcher import XidReport
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory.inventory import Gpu

UUID = "GPU-3d2b7a51-6c1e-4a3f-9d5c-0a1b2c3d4e5f"
OTHER = "GPU-3d2b7a51-0000-4a3f-9d5c-0a1b2c3d4e5f"
DEVICE = Device(UUID, "0", UUID, 0, (), ())
NODE = Evidence("boot-1", "driver-1")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary state directory."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def health(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["health", *arguments], prog_name="gpuhook")


def marked() -> GpuHealth:
    book = GpuHealth(Health(), NODE)
    book.update_gpus([Gpu(0, UUID)], 0.0)
    book.add_xid(XidReport(UUID, 95, 2, None), None, 1_700_000_000.0)
    return book


def test_a_gpu_stays_unhealthy_when_the_plugin_is_started_anew() -> None:
    """The pod's restart is no evidence, whatever the GPU answers; a reboot is."""
    book = GpuHealth(Health(), NODE)
    book.add_xid(XidReport(UUID, 79), None, 1.0)
    health_marks.write(book.marks)
    again = GpuHealth(Health(), NODE, health_marks.read())
    assert again.update_evidence(NODE) == ()
    again.update_gpus([Gpu(0, UUID)], 2.0)
    assert list(again.unhealthy([DEVICE])) == [UUID]
    rebooted = Evidence("boot-2", "driver-1")
    later = GpuHealth(Health(), rebooted, health_marks.read())
    assert len(later.update_evidence(rebooted)) == 1
    assert later.unhealthy([DEVICE]) == {}


def test_a_condition_is_not_kept() -> None:
    """The mark of an unlisted GPU is not stored: the next plugin determines it again."""
    book = marked()
    book.update_gpus([], 2.0)
    assert [mark.source for mark in book.marks] == ["absent", "xid 95"]
    health_marks.write(book.marks)
    assert [mark.source for mark in health_marks.read()] == ["xid 95"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "marks": []}', "[" * 100_000]
)
def test_a_broken_file_says_nothing(text: str) -> None:
    """No file, and no file that makes sense, are the same."""
    assert health_marks.read() == ()
    os.makedirs(health_marks.directory())
    Path(health_marks.path()).write_text(text, encoding="utf-8")
    assert health_marks.read() == ()


def test_a_file_that_others_can_write_is_not_believed() -> None:
    """Only root and the plugin's user can mark GPUs."""
    health_marks.write(marked().marks)
    os.chmod(health_marks.path(), 0o666)
    assert health_marks.read() == ()


def test_evidence_is_read_from_the_node(place: Path) -> None:
    """The boot id, this loading of the driver and the GPU's PCI device, as far as they are."""
    assert health_evidence.read(root=str(place)) == Evidence()
    boot = place / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("b0071d\n", encoding="ascii")
    module = place / "sys/module/nvidia"
    slot = place / "sys/bus/pci/devices/0000:00:1e.0"
    for directory in (module, slot):
        directory.mkdir(parents=True)
    gpus = [Gpu(0, UUID, pci_bus_id="00000000:00:1E.0"), Gpu(1, lost="fallen off the bus")]
    found = health_evidence.read(gpus, str(place))
    assert found == Evidence("b0071d", str(module.stat().st_ino), {UUID: str(slot.stat().st_ino)})


def test_show() -> None:
    """People get a table and programs an object; nothing marked is said on standard error."""
    assert "no GPU is marked" in health("show").stderr
    assert json.loads(health("show", "-o", "json").stdout)["marks"] == []
    health_marks.write(marked().marks)
    header, row = health("show").stdout.splitlines()
    assert header.split() == ["GPU", "UUID", "INSTANCE", "REASON", "TO-DO", "SINCE"]
    assert row.split()[:3] == ["0", UUID, "2:*"]
    assert "XID 95 (a memory error that was not contained)  reset the GPU" in row
    assert row.endswith("2023-11-14T22:13:20Z")
    document = json.loads(health("show", "-o", "json").stdout)
    assert document["schema"] == "gpuhook/health/v1"
    assert document["marks"] == [
        {
            "gpu": UUID,
            "index": 0,
            "instance": "2:*",
            "source": "xid 95",
            "reason": "XID 95 (a memory error that was not contained)",
            "remedy": "reset the GPU",
            "since": 1_700_000_000.0,
            "clearing": False,
        }
    ]


@pytest.mark.parametrize("name", ["0", UUID, UUID[:12]])
def test_clear_is_asked_of_the_plugin(name: str) -> None:
    """The request waits until the plugin has done it, and is for what is marked by then."""
    book = marked()
    health_marks.write(book.marks)
    assert health("clear", name).exit_code == 0
    assert "is being cleared" in health("show").stdout
    assert list(health_marks.clear_requests()) == [UUID]
    for gpu, since in health_marks.clear_requests().items():
        assert len(book.clear(gpu, since)) == 1
        health_marks.remove_request(gpu)
        health_marks.remove_request(gpu)
    assert health_marks.clear_requests() == {}
    assert book.unhealthy([DEVICE]) == {}


def test_clear_all_needs_no_mark() -> None:
    """It is of use where the marks cannot be read."""
    assert health("clear", "all").exit_code == 0
    assert list(health_marks.clear_requests()) == ["all"]


@pytest.mark.parametrize("name", ["1", "GPU-", "GPU-4", UUID[:8], "../../etc/passwd"])
def test_clear_wants_one_gpu(name: str) -> None:
    """An unknown GPU, or the beginning of two, is an error, and nothing is asked."""
    health_marks.write([*marked().marks, HealthMark(OTHER, "lost", "lost")])
    failed = health("clear", name)
    assert failed.exit_code == 1
    assert "GH1861" in failed.stderr
    assert health_marks.clear_requests() == {}


def test_a_request_is_named_by_a_gpu() -> None:
    """Nothing else becomes the name of a file, and nothing else is read as a request."""
    with pytest.raises(GpuhookError, match="not the UUID"):
        health_marks.request_clear("../GPU-0")
    health_marks.request_clear(UUID)
    stray = Path(health_marks.directory(), "clear", "stray")
    stray.touch()
    assert list(health_marks.clear_requests()) == [UUID]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "[" * 50_000])
def test_marks_that_cannot_be_read_are_told(text: str) -> None:
    """The command reports the fault; the plugin starts without marks."""
    Path(health_marks.directory()).mkdir(parents=True)
    Path(health_marks.path()).write_text(text)
    shown = health("show")
    assert shown.exit_code == 1
    assert "GH1865" in shown.stderr
    assert health_marks.read() == ()


def test_marks_that_anybody_can_write_are_not_believed() -> None:
    """So it is said, too."""
    health_marks.write(marked().marks)
    os.chmod(health_marks.path(), 0o666)
    assert "others than root can write it" in health("show").stderr
