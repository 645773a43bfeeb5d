# SPDX-License-Identifier: Apache-2.0
"""The shipped units and udev rules: as systemd reads them, and on nodes of several kinds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.vendors.amd.hot import amd_sysfs
from tests.contract.build_cache import CHECKOUT

PACKAGING = CHECKOUT / "packaging"
UNITS = sorted(PACKAGING.glob("systemd/gpuhook-*"))
RULES = PACKAGING / "udev/71-gpuhook.rules"
MOST_EXPOSED = {
    "gpuhook-refresh.service": 20, "gpuhook-devices.service": 30, "gpuhook-nri.service": 20,
}  # fmt: skip # tenths


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the units as they are installed."""
    place = tmp_path_factory.mktemp("units")
    (place / "gpuhook").write_text("#!/bin/sh\n")
    (place / "gpuhook").chmod(0o755)
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace("@BIN@", str(place))
        assert "@" not in text.replace("@system-service", "").replace("@module", "")
        (place / path.name).write_text(text, encoding="utf-8")
    return place


def analyze(units: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call systemd-analyze with our units in addition to systemd's own."""
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_LOG_LEVEL": "warning"}
    command = ["systemd-analyze", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_units_have_no_warnings(units: Path) -> None:
    assert len(UNITS) == 5
    done = analyze(units, "verify", "--man=no", *(str(units / path.name) for path in UNITS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_wrong_unit_has_a_warning(units: Path, tmp_path: Path) -> None:
    """Check that the test above can fail."""
    wrong = tmp_path / "gpuhook-wrong.service"
    wrong.write_text("[Service]\nExecStart=/no/such/program\nProtectSytem=strict\n")
    done = analyze(units, "verify", "--man=no", str(wrong))
    assert done.returncode != 0
    assert "ProtectSytem" in done.stderr


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_units_are_restricted(name: str, units: Path) -> None:
    """The exposure level is small by systemd's own measure."""
    words = ["security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED[name]}"]
    done = analyze(units, *words, str(units / name))
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def section(unit: str, key: str) -> list[str]:
    """Return the values of a key in a shipped unit, with its lines joined."""
    text = (PACKAGING / "systemd" / unit).read_text(encoding="utf-8").replace("\\\n", "")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def pci(sys: Path, number: int, vendor: str, kind: str, driver: str = "") -> None:
    """Make a PCI device in a tree like /sys."""
    device = sys / f"bus/pci/devices/0000:0{number}:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


NODES = {
    "no PCI": [],
    "no GPU": [("0x8086", "0x020000", "e1000e")],
    "GPU of another vendor": [("0x1002", "0x030000", "amdgpu")],
    "NVIDIA's network card": [("0x10de", "0x068000", "forcedeth")],
    "GPU of a virtual machine": [("0x10de", "0x030200", "vfio-pci")],
    "GPU": [("0x8086", "0x020000", "e1000e"), ("0x10de", "0x030200", "")],
    "one for a machine, one for us": [
        ("0x10de", "0x030200", "vfio-pci"),
        ("0x10de", "0x030000", "nvidia"),
    ],
}


@pytest.mark.parametrize("has_driver", [True, False])
@pytest.mark.parametrize("node", NODES)
def test_modules_are_loaded_on_nodes_with_a_gpu_and_driver(
    node: str, has_driver: bool, tmp_path: Path
) -> None:
    """On other nodes the unit is skipped, which is no failure."""
    sys = tmp_path / "sys"
    (sys / "bus").mkdir(parents=True)
    for number, facts in enumerate(NODES[node]):
        pci(sys, number, *facts)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "modprobe").write_text(f"#!/bin/sh\nexit {0 if has_driver else 1}\n")
    (programs / "modprobe").chmod(0o755)
    (condition,) = section("gpuhook-devices.service", "ExecCondition")
    words = shlex.split(condition.replace("$$", "$").replace("/sys/", f"{sys}/"))
    env = {"PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    is_wanted = has_driver and node in ("GPU", "one for a machine, one for us")
    # An ExecCondition with status 1 to 254 skips the unit (systemd.service(5)).
    assert done.returncode == (0 if is_wanted else 1)


def test_conditions_are_those_of_refresh() -> None:
    """The unit is skipped exactly if `gpuhook refresh` sees no driver."""
    conditions = section("gpuhook-refresh.service", "ConditionPathExists")
    told = {"|/sys/module/nvidia", "|/sys/module/nvgpu", "|/etc/nv_tegra_release", "|/dev/dxg"}
    assert set(conditions) == {*told, f"|{amd_sysfs.MODULE}"}
    source = (CHECKOUT / "gpuhook/vendors/nvidia/hot/host_fingerprint.py").read_text(
        encoding="utf-8"
    )
    for path in ("/sys/module/nvidia", "/sys/module/nvgpu", "/etc/nv_tegra_release", "/dev/dxg"):
        assert path in source


KEY = re.compile(r'^([A-Z]+)(?:\{(\w+)\})?(==|!=|\+=|=)"([^"]*)"$')


def goes(event: dict[str, str], *, has_systemd: bool = True) -> list[str]:
    """Return the commands that the rules run for an event of the kernel (udev(7))."""
    ran: list[str] = []
    label = ""
    for line in RULES.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [KEY.match(part.strip()) for part in line.split(", ")]
        assert all(parts), line
        keys = [(part[1], part[2], part[3], part[4]) for part in parts if part]
        if label:
            if ("LABEL", None, "=", label) in keys:
                label = ""
            continue
        if all(matches(key, event, has_systemd=has_systemd) for key in keys):
            ran += [value for name, _, _, value in keys if name == "RUN"]
            label = next((value for name, _, _, value in keys if name == "GOTO"), "")
    assert not label, "a GOTO without its LABEL"
    return ran


def matches(
    key: tuple[str, str | None, str, str], event: dict[str, str], *, has_systemd: bool
) -> bool:
    """Return whether a key of a rule matches; assignments always do."""
    name, which, operator, value = key
    if name in ("GOTO", "LABEL", "RUN"):
        assert operator in ("=", "+=")
        return True
    if name == "TEST":
        found = has_systemd
    else:
        assert name in ("ACTION", "DEVPATH", "SUBSYSTEM", "KERNEL", "ENV"), name
        text = event.get(which or name, "")
        found = any(fnmatchcase(text, one) for one in value.split("|"))
    assert operator in ("==", "!=")
    return found == (operator == "==")


GPU = {"SUBSYSTEM": "pci", "KERNEL": "0000:3b:00.0", "PCI_ID": "10DE:20B0", "PCI_CLASS": "30200"}
DRIVER = {"SUBSYSTEM": "module", "KERNEL": "nvidia"}
XCP = {"SUBSYSTEM": "drm", "DEVPATH": "/devices/platform/amdgpu_xcp_3/drm/renderD131"}


@pytest.mark.parametrize(
    ("event", "is_refreshed"),
    [
        ({**DRIVER, "ACTION": "add"}, True),
        ({**DRIVER, "ACTION": "remove"}, True),
        ({**DRIVER, "ACTION": "add", "KERNEL": "nvidia_uvm"}, True),
        ({**DRIVER, "ACTION": "add", "KERNEL": "nvidia_peermem"}, False),
        ({**DRIVER, "ACTION": "add", "KERNEL": "i2c_nvidia_gpu"}, False),
        ({**GPU, "ACTION": "add"}, True),
        ({**GPU, "ACTION": "bind"}, True),
        ({**GPU, "ACTION": "unbind"}, True),
        ({**GPU, "ACTION": "remove"}, True),
        ({**GPU, "ACTION": "change"}, False),
        ({**GPU, "ACTION": "add", "PCI_CLASS": "30000"}, True),
        ({**GPU, "ACTION": "add", "PCI_CLASS": "40300"}, False),
        ({**GPU, "ACTION": "add", "PCI_ID": "1002:744C", "PCI_CLASS": "30000"}, True),
        ({**GPU, "ACTION": "unbind", "PCI_ID": "1002:74A1", "PCI_CLASS": "120000"}, True),
        ({**GPU, "ACTION": "add", "PCI_ID": "1002:AB30", "PCI_CLASS": "40300"}, False),
        ({**GPU, "ACTION": "add", "PCI_ID": "8086:56C0"}, False),
        ({**DRIVER, "ACTION": "add", "KERNEL": "amdgpu"}, True),
        ({**XCP, "ACTION": "remove"}, True),
        ({**XCP, "ACTION": "add", "DEVPATH": "/devices/pci0000:00/x/drm/renderD128"}, False),
        ({**GPU, "ACTION": "add", "SUBSYSTEM": "drm"}, False),
    ],
)
def test_udev_rules_report_driver_and_gpus(event: dict[str, str], *, is_refreshed: bool) -> None:
    """Added and removed drivers and GPUs are reported to systemd, other devices are not.

    The rules do not start a disabled service.
    """
    unit = "gpuhook-refresh.service"
    start = f"! systemctl --quiet is-enabled {unit} || exec systemctl --no-block start {unit}"
    command = f"/bin/sh -c '{start}'"
    assert goes(event) == ([command] if is_refreshed else [])
    assert goes(event, has_systemd=False) == []


def test_nri_plugin_is_ready_between_the_engine_and_the_kubelet() -> None:
    """Containers that the kubelet starts earlier have no GPU. No one enables it by accident."""
    unit = "gpuhook-nri.service"
    assert {"containerd.service", "crio.service"} <= set(section(unit, "After")[0].split())
    assert section(unit, "Before") == ["kubelet.service"]
    assert (section(unit, "Type"), section(unit, "Restart")) == (["notify"], ["always"])
    preset = (PACKAGING / "systemd/90-gpuhook.preset").read_text(encoding="utf-8")
    assert f"disable {unit}\n" in preset


def test_nri_plugin_is_started_with_options_that_it_has() -> None:
    (command,) = section("gpuhook-nri.service", "ExecStart")
    program, *words = command.split()
    assert program == "@BIN@/gpuhook"
    done = CliRunner().invoke(main, [*words, "--help"], prog_name="gpuhook")
    assert done.exit_code == 0, done.output
    assert words[-1] in done.output
