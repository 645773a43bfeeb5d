# SPDX-License-Identifier: Apache-2.0
"""Nodes whose NRI plugin is not asked, or is in another one's way."""

from __future__ import annotations

from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import engines
from tests.doctor.parts.engines import CONFIG, CRI, DROP_IN, IMPORTS, NVIDIA, RUNC, programs
from tests.doctor.parts.kubernetes import process, processes, units

UNIT = "gpuhook-nri.service"
PLUGINS = "/opt/nri/plugins"
NRI = '[plugins."io.containerd.nri.v1.nri"]\n'
CRIO = "/etc/crio/crio.conf.d/10-nri.conf"


def plugin(case: FaultCase, pid: int = 900, *options: str) -> None:
    """Add a running `gpuhook nri run`, as its launcher starts it."""
    argv = ["/usr/bin/python3", "-I", "-c", "", "/usr/bin/gpuhook", "nri", "run", *options]
    processes(case).append({**process(pid, "gpuhook", *argv), "name": "gpuhook"})


def enabled(case: FaultCase, lines: str = "disable = false\n") -> None:
    """Write a containerd with these lines of its NRI's table, and add the plugin."""
    case.write(CONFIG, f"version = 2\n{IMPORTS}{RUNC}{NRI}{lines}")
    case.write(DROP_IN, f"version = 2\n{RUNC}{NVIDIA}")
    engines.run(case, "containerd")
    plugin(case)


def _disabled(case: FaultCase) -> None:
    enabled(case, "")


def _disabled_plugin(case: FaultCase) -> None:
    enabled(case)
    text = case.path(CONFIG).read_text(encoding="utf-8")
    case.write(CONFIG, f'disabled_plugins = ["io.containerd.nri.v1.nri"]\n{text}')


def _too_old(case: FaultCase) -> None:
    enabled(case)
    programs(case)["containerd"]["version"] = "1.6.20"


def _no_connections(case: FaultCase) -> None:
    enabled(case, "disable = false\ndisable_connections = true\n")


def _not_running(case: FaultCase) -> None:
    enabled(case)
    processes(case).pop()
    units(case)[UNIT] = {
        "load": "loaded", "active": "failed", "result": "timeout", "enabled": "enabled",
    }  # fmt: skip


def _twice(case: FaultCase) -> None:
    enabled(case)
    plugin(case, 901)


def _same_name(case: FaultCase) -> None:
    enabled(case)
    case.write(f"{PLUGINS}/30-gpuhook", "", 0o755)


def _same_index(case: FaultCase) -> None:
    enabled(case)
    case.write(f"{PLUGINS}/10-device-injector", "", 0o755)


def _file_without_index(case: FaultCase) -> None:
    enabled(case)
    case.write(f"{PLUGINS}/README", "")


def _crio_disabled(case: FaultCase) -> None:
    case.write(CRIO, "[crio.nri]\nenable_nri = false\n")
    programs(case)["crio"] = {"path": "/usr/bin/crio", "version": "1.34.1"}
    engines.install(case, "crio", "crun", "conmon")
    case.write(CONFIG, f'version = 2\ndisabled_plugins = ["{CRI[9:-1]}"]\n{IMPORTS}{RUNC}')
    plugin(case)


BROKEN = [
    Broken("nri-disabled", "nri.engine", _disabled),
    Broken("nri-in-disabled-plugins", "nri.engine", _disabled_plugin),
    Broken("nri-of-containerd-1.6", "nri.engine", _too_old),
    Broken("nri-of-crio-disabled", "nri.engine", _crio_disabled),
    Broken("nri-without-connections", "nri.engine", _no_connections),
    Broken("nri-plugin-failed", "nri.running", _not_running),
    Broken("nri-plugin-twice", "nri.running", _twice),
    Broken("nri-plugin-of-the-same-name", "nri.plugins", _same_name),
    Broken("nri-plugin-of-the-same-index", "nri.plugins", _same_index, is_warning=True),
    Broken("nri-file-without-index", "nri.plugins", _file_without_index, is_warning=True),
]
