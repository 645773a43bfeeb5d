# SPDX-License-Identifier: Apache-2.0
"""The SELinux module and the AppArmor profile: the real compilers read them.

This machine enforces neither: a denial of an enforcing node is not found here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.charts.rendering import container, rendered
from tests.charts.values import DRA, MPS
from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import Installation

SELINUX = CHECKOUT / "packaging/selinux"
APPARMOR = CHECKOUT / "packaging/apparmor"
PROFILE = APPARMOR / "gpuhook-device-plugin"
RUNTIME = "system_u:object_r:container_runtime_exec_t:s0"
# Writable places that are no mounts of the chart: the container's own /dev and /proc.
OWN = {"/dev", "/proc", "/var/lib/kubelet/pod-resources/kubelet.sock"}


def compiled(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Compile an SELinux module, which must have the name of its file."""
    (place / "gpuhook.te").write_text(text, encoding="utf-8")
    words = ["checkmodule", "-M", "-m", "-o", str(place / "gpuhook.mod"), str(place / "gpuhook.te")]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_selinux_module_is_compiled(tmp_path: Path) -> None:
    """It becomes the package that semodule installs, with the labels of the files."""
    done = compiled(tmp_path, (SELINUX / "gpuhook.te").read_text(encoding="utf-8"))
    assert (done.returncode, done.stderr) == (0, "")
    package, labels = tmp_path / "gpuhook.pp", tmp_path / "labels"
    module = ["-m", str(tmp_path / "gpuhook.mod"), "-f", str(SELINUX / "gpuhook.fc")]
    subprocess.run(["semodule_package", "-o", package, *module], check=True)
    out = [str(package), str(tmp_path / "module"), str(labels)]
    subprocess.run(["semodule_unpackage", *out], check=True)
    assert labels.read_bytes() == (SELINUX / "gpuhook.fc").read_bytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [("read write };\n}", "read fly };\n}"), ("type init_t;", ""), ("gpus) {", "cpus) {")],
)
def test_wrong_selinux_module_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """The compiler checks permissions, types and booleans."""
    text = (SELINUX / "gpuhook.te").read_text(encoding="utf-8")
    assert old in text
    assert compiled(tmp_path, text.replace(old, new)).returncode != 0


def label(path: str) -> str:
    """Return the label of a regular file with this path: the last matching line applies."""
    found = ""
    for line in (SELINUX / "gpuhook.fc").read_text(encoding="utf-8").splitlines():
        pattern, *kind, context = line.split("\t")
        assert kind in ([], ["--"])
        found = context if re.fullmatch(pattern, path) else found
    return found


def test_programs_and_state_have_labels(node8: Installation) -> None:
    """Each installed program that an engine, systemd or a person starts."""
    programs = [name for name in os.listdir(node8.bindir) if name != "kubectl-gpuhook"]
    assert len(programs) >= 4
    for name in programs:
        for directory in ("/usr/bin", "/usr/local/bin", "/opt/gpuhook/versions/1-abc/bin"):
            assert label(f"{directory}/{name}") == RUNTIME, name
    assert label("/usr/bin/gpuhook-x/y") == ""
    assert "container_var_run_t" in label("/run/gpuhook/containers/x.json")
    assert "container_config_t" in label("/etc/cdi/nvidia.yaml")


def parsed(profile: Path) -> subprocess.CompletedProcess[str]:
    """Compile an AppArmor profile without the kernel and without a cache."""
    words = ["apparmor_parser", "--skip-kernel-load", "--skip-cache"]
    words += ["--base", "/etc/apparmor.d", "--Include", str(APPARMOR), str(profile)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_apparmor_profile_is_compiled(tmp_path: Path) -> None:
    done = parsed(PROFILE)
    assert done.returncode == 0, done.stderr
    wrong = tmp_path / "wrong"
    text = PROFILE.read_text(encoding="utf-8")
    wrong.write_text(text.replace("capability kill,", "capability fly,"), encoding="utf-8")
    assert parsed(wrong).returncode != 0


def written() -> Iterator[str]:
    """Yield the directories that the profile lets the container write to."""
    for line in PROFILE.read_text(encoding="utf-8").splitlines():
        rule = re.fullmatch(r"  (?:owner )?(/\S*|@\S+) ([a-z]+),", line)
        if rule is None or "w" not in rule[2]:
            continue
        path = rule[1].replace("@{PROC}/@{pid}/comm", "/proc")
        parts = [
            part[1:-1].split(",") if part.startswith("{") else [part]
            for part in re.split(r"(\{[^}]*\})", re.sub(r"/\*+$|/$", "", path))
        ]
        yield from ("".join(words) for words in product(*parts))


def mounts(values: dict[str, Any], name: str) -> Iterator[tuple[str, bool]]:
    """Yield the mounts of a container of the chart, and whether each is writable."""
    for one in container(rendered(values), name)["volumeMounts"]:
        yield one["mountPath"], not one.get("readOnly", False)


def test_apparmor_profile_has_the_mounts_of_the_chart() -> None:
    """Everything that the chart mounts writable, and nothing else, except what MIG needs."""
    given = dict(mounts(MPS | {"amd": {"nodes": "mixed"}}, "device-plugin"))
    for path, is_writable in mounts(MPS | DRA | {"amd": {"nodes": "mixed"}}, "-dra"):
        given[path] = given.get(path, False) or is_writable
    ours = set(written())
    hidden = {"/driver-root/proc", "/driver-root/run", "/driver-root/sys", "/driver-root/var"}
    device = {"/dev/dri", "/var/run/nvidia-container-devices/all"}
    wanted = {path for path, is_writable in given.items() if is_writable} - hidden - device
    assert wanted <= ours
    also = {path.replace("/var/run/", "/run/") for path in wanted}
    also |= {path.replace("/run/", "/var/run/") for path in wanted if path.startswith("/run/")}
    rest = ours - wanted - also
    assert {one for one in rest if not one.startswith(tuple(OWN))} == {
        "/driver-root/dev/nvidia-caps",
        "/var/lib/amd-metrics-exporter",
    }
