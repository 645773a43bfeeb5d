# SPDX-License-Identifier: Apache-2.0
"""The marks on disk, the evidence of a node, and `gpuhook health`."""

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
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from gpuhook.vendors.nvidia.plugin.nvml_watcher import XidReport

UUID = "GPU-3d2b7a51-6c1e-4a3f-9d5c-0a1b2c3d4e5f"
OTHER = "GPU-3d2b7a51-0000-4a3f-9d5c-0a1b2c3d4e5f"
DEVICE = Device(UUID, "0", UUID, 0, (), ())
NODE = Evidence("boot-1", "driver-1")


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary state directory."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def health(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["health", *arguments], prog_name="gpuhook")


def marked_gpu_health() -> GpuHealth:
    book = GpuHealth(Health(), NODE)
    book.update_gpus([Gpu(0, UUID)], 0.0)
    book.add_xid(XidReport(UUID, 95, 2, None), None, 1_700_000_000.0)
    return book


def test_marks_apply_after_a_restart_of_the_plugin() -> None:
    """A restarted pod is no evidence; a reboot is."""
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


def test_mark_of_an_unlisted_gpu_is_not_stored() -> None:
    """The next plugin lists the GPUs again."""
    book = marked_gpu_health()
    book.update_gpus([], 2.0)
    assert [mark.source for mark in book.marks] == ["absent", "xid 95"]
    health_marks.write(book.marks)
    assert [mark.source for mark in health_marks.read()] == ["xid 95"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "marks": []}', "[" * 100_000]
)
def test_malformed_file_has_no_marks(text: str) -> None:
    """A malformed file is treated like a missing one."""
    assert health_marks.read() == ()
    os.makedirs(health_marks.directory())
    Path(health_marks.path()).write_text(text, encoding="utf-8")
    assert health_marks.read() == ()


def test_world_writable_file_has_no_marks() -> None:
    """Only root and the plugin's user can mark GPUs."""
    health_marks.write(marked_gpu_health().marks)
    os.chmod(health_marks.path(), 0o666)
    assert health_marks.read() == ()


def test_evidence_has_boot_id_driver_load_and_pci_device(state_directory: Path) -> None:
    """Missing files are skipped."""
    assert health_evidence.read({}, "nvidia", str(state_directory)) == Evidence()
    boot = state_directory / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("b0071d\n", encoding="ascii")
    module = state_directory / "sys/module/nvidia"
    slot = state_directory / "sys/bus/pci/devices/0000:00:1e.0"
    for directory in (module, slot):
        directory.mkdir(parents=True)
    slots = {UUID: "00000000:00:1E.0", "GPU-lost": "00000000:af:00.0", "GPU-odd": "garbage"}
    found = health_evidence.read(slots, "nvidia", str(state_directory))
    assert found == Evidence("b0071d", str(module.stat().st_ino), {UUID: str(slot.stat().st_ino)})


def test_show_prints_a_table_and_json() -> None:
    """If there are no marks, a message on standard error replaces the table."""
    assert "no GPU is marked" in health("show").stderr
    assert json.loads(health("show", "-o", "json").stdout)["marks"] == []
    health_marks.write(marked_gpu_health().marks)
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
def test_clear_writes_a_request_for_the_plugin(name: str) -> None:
    """`show` reports the request until the plugin has removed it."""
    book = marked_gpu_health()
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


def test_clear_all_works_without_marks() -> None:
    """The marks may be unreadable."""
    assert health("clear", "all").exit_code == 0
    assert list(health_marks.clear_requests()) == ["all"]


@pytest.mark.parametrize("name", ["1", "GPU-", "GPU-4", UUID[:8], "../../etc/passwd"])
def test_clear_refuses_unknown_and_ambiguous_names(name: str) -> None:
    """No request is written."""
    health_marks.write([*marked_gpu_health().marks, HealthMark(OTHER, "lost", "lost")])
    failed = health("clear", name)
    assert failed.exit_code == 1
    assert "GH1861" in failed.stderr
    assert health_marks.clear_requests() == {}


def test_clear_request_needs_a_uuid() -> None:
    """Other names would become paths; other files in the directory are ignored."""
    with pytest.raises(GpuhookError, match="not the UUID"):
        health_marks.request_clear("../GPU-0")
    health_marks.request_clear(UUID)
    stray = Path(health_marks.directory(), "clear", "stray")
    stray.touch()
    assert list(health_marks.clear_requests()) == [UUID]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "[" * 50_000])
def test_unreadable_marks_are_reported_by_show(text: str) -> None:
    """The plugin starts without marks."""
    Path(health_marks.directory()).mkdir(parents=True)
    Path(health_marks.path()).write_text(text)
    shown = health("show")
    assert shown.exit_code == 1
    assert "GH1865" in shown.stderr
    assert health_marks.read() == ()


def test_world_writable_marks_are_reported_by_show() -> None:
    health_marks.write(marked_gpu_health().marks)
    os.chmod(health_marks.path(), 0o666)
    assert "users other than root can write to it" in health("show").stderr
