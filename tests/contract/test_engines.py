# SPDX-License-Identifier: Apache-2.0
"""containerd and podman as the tests run them, on plain runc and crun, without gpuhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.contract import engines
from tests.contract.engines import Containerd
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, launcher
from tests.contract.views import questions

ASKED = ["/probe", *questions("/etc/hostname", tries=["195:7"])]


def test_containerd_calls_the_given_runtime(
    containerd: Containerd, tmp_path: Path, root_of: Roots
) -> None:
    """`ctr run` starts a container with the given runtime binary."""
    mark = tmp_path / "called"
    script = f'echo "$@" >> {mark}; exec runc "$@"'
    runtime = launcher(tmp_path / "runtime", ["/bin/sh", "-c", script, "sh"])
    view = containerd.run(root_of("debian"), ASKED, runtime, env=["A=b"]).view
    assert view.values("A") == ["b"]
    assert view.tries["195:7"] == "EPERM"
    assert " create --bundle " in mark.read_text(encoding="utf-8")


def test_containerd_calls_crun(tmp_path: Path, root_of: Roots) -> None:
    """A containerd of the tests can have crun as its low-level runtime."""
    with engines.containerd(tmp_path / "containerd", "crun") as daemon:
        view = daemon.run(root_of("debian"), ASKED, "crun").view
    assert view.tries["195:7"] == "EPERM"


def test_containerd_reports_a_failed_create(
    containerd: Containerd, tmp_path: Path, root_of: Roots
) -> None:
    """`ctr run` prints the last error of the runtime's JSON --log, and no other output."""
    line = json.dumps({"level": "error", "msg": "no GPU today", "time": "2024-01-01T00:00:00Z"})
    script = f"""
        case "$*" in *" create "*) ;; *) exec runc "$@" ;; esac
        while [ "$1" != --log ]; do shift; done
        echo '{line}' >> "$2"
        echo unheard >&2
        exit 1"""
    runtime = launcher(tmp_path / "runtime", ["/bin/sh", "-c", script, "sh"])
    result = containerd.run(root_of("debian"), ASKED, runtime)
    assert result.rc != 0
    assert "no GPU today" in result.stderr
    assert "unheard" not in result.stderr


@ENGINES
def test_podman_applies_cdi_specs(
    engine: str, tmp_path: Path, root_of: Roots, node: Callable[[int, int], Path]
) -> None:
    """podman provides the device of a CDI spec in the given directory, and no other."""
    edits = {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": str(node(195, 0))}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    specs = tmp_path / "cdi"
    specs.mkdir()
    (specs / "nvidia.json").write_text(json.dumps(spec), encoding="utf-8")
    options = ["--device", "nvidia.com/gpu=0", "--cap-add", "MKNOD"]
    result = engines.podman(
        tmp_path / "podman", root_of("debian"), ASKED, options, engine, engine, specs
    )
    view = result.view
    assert [n.open for n in view.gpus().values()] == ["ENXIO"]
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    assert view.tries == {"195:7": "EPERM"}


def test_podman_reads_no_spec_of_the_machine(tmp_path: Path, root_of: Roots) -> None:
    """Without a directory of specs each CDI device is unknown, whatever the machine has."""
    options = ["--device", "nvidia.com/gpu=all"]
    result = engines.podman(tmp_path / "podman", root_of("debian"), ASKED, options)
    assert result.rc != 0
    assert "nvidia.com/gpu=all" in result.stderr
