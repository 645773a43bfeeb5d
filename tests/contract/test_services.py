# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh` under its systemd unit's restrictions."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import Installation
from tests.contract.runtimes import run_command

UNIT = CHECKOUT / "packaging/systemd/gpuhook-refresh.service"


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


def setting(key: str) -> str:
    """Return the value of a key of the unit."""
    match = re.search(rf"^{key}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert match, key
    return match[1]


def allowed_system_calls() -> set[str]:
    """Return the system calls of the unit's filter, as systemd-analyze prints them."""
    command = ["systemd-analyze", "syscall-filter", "--no-pager"]
    names: set[str] = set()
    pending = [setting("SystemCallFilter")]
    while pending:
        text = subprocess.check_output([*command, pending.pop()], text=True)
        words = [line.strip() for line in text.split("\n")[1:] if line.startswith("    ")]
        words = [word for word in words if not word.startswith("#")]
        pending += [word for word in words if word.startswith("@")]
        names |= {word for word in words if not word.startswith("@")}
    return names


def confined(installation: Installation, trace: Path) -> list[str]:
    """Return the command of the unit with its capabilities, and with strace."""
    bounds = "-all," + ",".join(
        "+" + name.removeprefix("CAP_").lower() for name in setting("CapabilityBoundingSet").split()
    )
    command = [str(installation.bindir / "gpuhook"), "refresh"]
    installation.state.mkdir(parents=True, exist_ok=True)
    places = [
        str(path)
        for path in (installation.place, installation.specs, installation.state, trace.parent)
    ]
    return [
        *("unshare", "--mount", "--net", "sh", "-c", PROTECTED, "sh", *places, "--"),
        *("strace", "-f", "-qq", "-o", str(trace), "-e", "signal=none"),
        *("setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounds}"),
        *command,
    ]


def test_refresh_with_the_restrictions_of_its_unit(apart: Installation, tmp_path: Path) -> None:
    """It generates a stale spec again, and uses only system calls of the unit's filter."""
    trace = tmp_path / "traces/trace"
    trace.parent.mkdir()
    before = apart.spec.read_text(encoding="utf-8")
    document = yaml.safe_load(before)
    apart.spec.write_text(before.replace("boot=", "boot=x"), encoding="utf-8")
    done = run_command([*confined(apart, trace), "--force"], {**os.environ, **apart.env})
    assert done.rc == 0, done
    assert f"{apart.spec}: written" in done.stdout
    assert yaml.safe_load(apart.spec.read_text(encoding="utf-8")) == document
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    start = next(i for i, line in enumerate(lines) if "execve" in line and "gpuhook" in line)
    called = {match[1] for line in lines[start:] if (match := re.match(r"\d+ +(\w+)\(", line))}
    assert len(called) > 20
    assert called - allowed_system_calls() == set()
