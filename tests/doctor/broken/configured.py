# SPDX-License-Identifier: Apache-2.0
"""Changed configurations of gpuhook, and its broken units and programs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from click.testing import CliRunner

from gpuhook.cli.engines.configure import configure
from gpuhook.node_facts.sources import node_readings
from tests.doctor.broken import specs
from tests.doctor.broken.other_engines import DAEMON, docker
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts.driver import unit

UNIT = "/etc/systemd/system/docker.service.d/gpu.conf"
REFRESH = "/usr/lib/systemd/system/gpuhook-refresh.service"


def configured(case: FaultCase, *words: str) -> None:
    """Configure Docker with gpuhook, without a dockerd that could verify it."""
    docker(case, runtimes={})
    case.remove("/usr/bin/dockerd")
    done = CliRunner().invoke(configure, ["docker", *words, "--host-root", str(case.root)])
    assert done.exit_code == 0, done.output
    case.write("/usr/bin/dockerd", "#!/bin/sh\n", 0o755)


def _file_gone(case: FaultCase) -> None:
    configured(case)
    case.remove(DAEMON)


def _taken_out(case: FaultCase) -> None:
    configured(case)
    case.write(DAEMON, '{"log-level": "warn"}\n')


def _record_cut_short(case: FaultCase) -> None:
    configured(case)
    case.write("/var/lib/gpuhook/configured/docker/record.json", '{"schema": ')


def docker_container(case: FaultCase, *, running: bool) -> None:
    """Make Docker keep a container whose runtime was removed with gpuhook."""
    containers: list[dict[str, Any]] = case.readings.setdefault(node_readings.STORED, [])
    containers.append(
        {
            "engine": "docker",
            "id": "0a1b2c3d4e5f60718293",
            "name": "trainer",
            "why": "its runtime is nvidia",
            "program": "/opt/gpuhook/bin/gpuhook-runtime",
            "running": running,
        }
    )


def _flag(case: FaultCase) -> None:
    docker(case)
    command = "ExecStart=\nExecStart=/usr/bin/dockerd --add-runtime nvidia=/usr/bin/nvidia-runtime"
    case.write(UNIT, f"[Service]\n{command}\n")
    case.write("/usr/lib/systemd/system/docker.service", "[Service]\nExecStart=/usr/bin/dockerd\n")


def _units(case: FaultCase, **state: str) -> None:
    case.write(REFRESH, "[Service]\nExecStart=/usr/bin/gpuhook refresh\n")
    for name in ("gpuhook-refresh.service", "gpuhook-refresh.path"):
        case.readings[node_readings.UNITS][name] = unit(**state)


def _no_environment(document: Any) -> None:
    edits = [document["containerEdits"], *(one["containerEdits"] for one in document["devices"])]
    for hook in [hook for one in edits for hook in one.get("hooks", ())]:
        hook.pop("env", None)


def edited(case: FaultCase) -> None:
    """Write another key into a file that gpuhook configured, which is not a fault."""
    configured(case)
    document = json.loads(case.path(DAEMON).read_text("utf-8"))
    case.write(DAEMON, json.dumps({**document, "log-level": "warn"}))


BROKEN = [
    Broken("configured-file-gone", "installation.configured", _file_gone, is_warning=True),
    Broken("configured-and-taken-out", "installation.configured", _taken_out, is_warning=True),
    Broken("record-cut-short", "installation.configured", _record_cut_short, is_warning=True),
    Broken(
        "program-of-containers-gone", "installation.users", partial(docker_container, running=False)
    ),
    Broken(
        "program-of-running-containers-gone",
        "installation.users",
        partial(docker_container, running=True),
        is_warning=True,
    ),
    Broken("docker-flag-beside-the-file", "docker.flags", _flag),
    Broken("refresh-failed", "specs.upkeep", partial(_units, active="failed"), is_warning=True),
    Broken(
        "refresh-disabled", "specs.upkeep", partial(_units, enabled="disabled"), is_warning=True
    ),
    Broken(
        "spec-of-nvidia-ctk-1.17.7",
        "specs.hook-environment",
        specs._toolkit(_no_environment),
        is_warning=True,
    ),
]
