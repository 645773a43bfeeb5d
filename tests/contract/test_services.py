# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh` and `gpuhook nri run` under the restrictions of their systemd units."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import yaml

from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import Installation
from tests.contract.runtimes import launcher, run_command
from tests.nri import fake_runtime
from tests.nri.fake_runtime import FakeRuntime
from tests.nri.nri_plugin import nri_plugin

UNITS = CHECKOUT / "packaging/systemd"
REFRESH, NRI = "gpuhook-refresh.service", "gpuhook-nri.service"


# ProtectSystem=strict, ReadWritePaths, ProtectKernelModules: only the directories after the first
# one are writable; the first one has the installation and its node.
PROTECTED = """
set -e
mount --make-rprivate /
top=$1
while [ "$1" != -- ]; do mount --bind "$1" "$1"; shift; done
shift
[ ! -d /lib/modules ] || mount -t tmpfs -o mode=000 tmpfs /lib/modules
mount -o remount,bind,ro "$top"
mount -o remount,bind,ro /
if touch "$top/elsewhere" 2>/dev/null; then exit 99; fi
exec "$@"
"""


def setting(unit: str, key: str) -> str:
    """Return the value of a key of a unit."""
    text = (UNITS / unit).read_text(encoding="utf-8")
    match = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
    assert match, key
    return match[1]


def allowed_system_calls(unit: str) -> set[str]:
    """Return the system calls of a unit's filter, as systemd-analyze prints them."""
    command = ["systemd-analyze", "syscall-filter", "--no-pager"]
    names: set[str] = set()
    pending = [setting(unit, "SystemCallFilter")]
    while pending:
        text = subprocess.check_output([*command, pending.pop()], text=True)
        words = [line.strip() for line in text.split("\n")[1:] if line.startswith("    ")]
        words = [word for word in words if not word.startswith("#")]
        pending += [word for word in words if word.startswith("@")]
        names |= {word for word in words if not word.startswith("@")}
    return names


def confined(unit: str, installation: Installation, trace: Path) -> list[str]:
    """Return the start of a command with the capabilities of the unit, and with strace."""
    given = setting(unit, "CapabilityBoundingSet").split()
    bounds = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in given)])
    installation.state.mkdir(parents=True, exist_ok=True)
    places = [
        str(path)
        for path in (installation.place, installation.specs, installation.state, trace.parent)
    ]
    return [
        *("unshare", "--mount", "--net", "sh", "-c", PROTECTED, "sh", *places, "--"),
        *("strace", "-f", "-qq", "-o", str(trace), "-e", "signal=none"),
        *("setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounds}"),
        str(installation.bindir / "gpuhook"),
    ]


def forbidden_calls(unit: str, trace: Path) -> set[str]:
    """Return the system calls of the traced program that the unit's filter forbids."""
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    start = next(i for i, line in enumerate(lines) if "execve" in line and "gpuhook" in line)
    called = {match[1] for line in lines[start:] if (match := re.match(r"\d+ +(\w+)\(", line))}
    assert len(called) > 20
    return called - allowed_system_calls(unit)


def test_refresh_with_the_restrictions_of_its_unit(apart: Installation, tmp_path: Path) -> None:
    """It generates a stale spec again, and uses only system calls of the unit's filter."""
    trace = tmp_path / "traces/trace"
    trace.parent.mkdir()
    before = apart.spec.read_text(encoding="utf-8")
    document = yaml.safe_load(before)
    apart.spec.write_text(before.replace("boot=", "boot=x"), encoding="utf-8")
    command = [*confined(REFRESH, apart, trace), "refresh", "--force"]
    done = run_command(command, {**os.environ, **apart.env})
    assert done.rc == 0, done
    assert f"{apart.spec}: written" in done.stdout
    assert yaml.safe_load(apart.spec.read_text(encoding="utf-8")) == document
    assert forbidden_calls(REFRESH, trace) == set()


def test_nri_plugin_with_the_restrictions_of_its_unit(
    node8: Installation, tmp_path: Path, short_path: Path
) -> None:
    """Without a capability and a writable file system it connects, gives a GPU and ends."""
    node = node8.apart(tmp_path / "apart", nri={"namespaces": ["default"]})
    trace = tmp_path / "traces/trace"
    trace.parent.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    launcher(programs / "gpuhook", confined(NRI, node, trace))
    runtime = FakeRuntime(short_path / "nri.sock")
    try:
        with nri_plugin(replace(node, bindir=programs), runtime.path) as plugin:
            link = runtime.accept()
            assert link.start("containerd", "1.7.24~ds1") == 8
            asking = fake_runtime.container(["NVIDIA_VISIBLE_DEVICES=0"])
            adjust = link.create(fake_runtime.pod(), asking).adjust
            assert node.device(0) in {device.path for device in adjust.linux.devices}
            assert "Read-only" not in plugin.text()
            strace = plugin.process.pid  # it passes no signal on
            children = Path(f"/proc/{strace}/task/{strace}/children").read_text(encoding="ascii")
            os.kill(int(children), signal.SIGTERM)
            assert plugin.process.wait(60) == 0
    finally:
        runtime.close()
    assert forbidden_calls(NRI, trace) == set()
