# SPDX-License-Identifier: Apache-2.0
"""Nodes with AMD GPUs whose specs, groups, runtime or device plugins are wrong."""

from __future__ import annotations

import json
from functools import partial

from tests.doctor.broken.amd import NODE_BROKEN, NODE_WARNED
from tests.doctor.case import FaultCase
from tests.doctor.parts import amd, kubernetes
from tests.simulated.amd_profiles import RENDER_GROUP


def _invalid_spec(case: FaultCase) -> None:
    case.write(amd.TOOLS_SPEC, '{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": 3}')


def _two_specs(case: FaultCase) -> None:
    document = amd.tools_spec(case)
    case.write("/var/run/cdi/amd.json", json.dumps(document))


def tools_spec_only(case: FaultCase, text: str = "", new: str = "") -> None:
    """Replace gpuhook's spec by that of amd-ctk, with one text replaced."""
    case.remove(amd.SPEC)
    document = json.dumps(amd.tools_spec(case))
    assert text in document
    case.write(amd.TOOLS_SPEC, document.replace(text, new) if text else document)


def _alone(case: FaultCase) -> None:
    case.write("/etc/group", f"render:x:{RENDER_GROUP}:\n")


def _no_runtime(case: FaultCase) -> None:
    case.remove("/usr/bin/amd-container-runtime")


def _default_runtime(case: FaultCase) -> None:
    case.write(amd.DAEMON, json.dumps({**amd.RUNTIME, "default-runtime": "amd"}))


def _rpm(case: FaultCase) -> None:
    case.path("/usr/local/bin/amd-ctk").rename(case.path("/usr/bin/amd-ctk"))


def _other_spec(case: FaultCase) -> None:
    case.write("/etc/cdi/vendor.yaml", "cdiVersion: 0.6.0\nkind: example.com/nic\ndevices: []\n")


def _two_plugins(case: FaultCase) -> None:
    kubernetes.add_socket(case, f"{kubernetes.PLUGINS}/amd-gpu.sock")


def _limit_without_dmem(case: FaultCase) -> None:
    case.remove("/sys/fs/cgroup/dmem.capacity")
    entry = json.loads(case.path(amd.ENTRY).read_text(encoding="utf-8"))
    trouble = "GH2540: the kernel has no cgroup controller dmem"
    record = {"device": "0000:05:00.0", "hard": 1 << 30, "by": "", "trouble": trouble}
    case.write(amd.ENTRY, json.dumps({**entry, "memory": [record]}))


BROKEN = [
    NODE_WARNED("amd-memory-limit-without-dmem", "amd.dmem", _limit_without_dmem),
    NODE_BROKEN("amd-spec-invalid", "amd.specs", _invalid_spec),
    NODE_BROKEN("amd-specs-in-conflict", "amd.spec-conflicts", _two_specs),
    NODE_BROKEN(
        "amd-ctk-spec-with-an-old-major",
        "amd.spec-numbers",
        partial(tools_spec_only, text='"major": 238', new='"major": 509'),
    ),
    NODE_BROKEN(
        "amd-ctk-spec-without-numbers",
        "amd.spec-numbers",
        partial(tools_spec_only, text='"major": 226, "minor": 128', new='"major": 0, "minor": 0'),
    ),
    NODE_WARNED("amd-ctk-spec-without-groups", "amd.groups", tools_spec_only),
    NODE_WARNED("user-outside-the-render-group", "amd.users", _alone),
    NODE_BROKEN("amd-runtime-not-installed", "docker.binary", _no_runtime),
    NODE_WARNED("amd-runtime-is-the-default", "amd.runtime", _default_runtime),
    NODE_WARNED("amd-hook-at-another-path", "amd.hook", _rpm),
    NODE_WARNED("amd-package-beside-other-specs", "amd.package", _other_spec),
    NODE_BROKEN("two-amd-plugins", "amd.plugins", _two_plugins),
]
