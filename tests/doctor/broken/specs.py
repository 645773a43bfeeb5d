# SPDX-License-Identifier: Apache-2.0
"""Invalid and stale CDI specs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors.spec.spec_choices import DEFAULT_HOOK_PATH
from tests.doctor.broken.driver import replace
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import driver
from tests.doctor.parts.driver import SPEC
from tests.doctor.parts.engines import TOOLKIT
from tests.simulated.profiles import LIBRARY_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TOOLKIT = "/var/run/cdi/nvidia.json"


def _toolkit(change: Callable[[Any], None], **options: str) -> Callable[[FaultCase], None]:
    """Return a function that replaces gpuhook's spec by a changed spec of NVIDIA's toolkit."""

    def do(case: FaultCase) -> None:
        document = driver.toolkit_spec(case, **options)
        change(document)
        case.remove(SPEC)
        case.write(_TOOLKIT, json.dumps(document))

    return do


def _nodes(document: Any, path: str) -> Any:
    edits = [document["containerEdits"], *(d["containerEdits"] for d in document["devices"])]
    return [node for one in edits for node in one["deviceNodes"] if node["path"] == path]


def _old_major(document: Any) -> None:
    for node in _nodes(document, "/dev/nvidia-uvm"):
        node["major"] += 1


def _missing_mount(document: Any) -> None:
    mount = {"hostPath": "/usr/bin/nvidia-gone", "containerPath": "/usr/bin/nvidia-gone"}
    document["containerEdits"]["mounts"].append(mount)


def _missing_node(document: Any) -> None:
    document["containerEdits"]["deviceNodes"].append({"path": "/dev/nvidia-fs0"})


def _no_mask(document: Any) -> None:
    document["containerEdits"]["hooks"].pop()


def _another_gpu(document: Any) -> None:
    for device in document["devices"]:
        if device["name"].startswith("GPU-"):
            device["name"] = "GPU-00000000-1111-2222-3333-444444444444"


def _without_a_gpu(document: Any) -> None:
    names = {"0", "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"}
    document["devices"] = [one for one in document["devices"] if one["name"] not in names]


def _relative_hook(document: Any) -> None:
    document["containerEdits"]["hooks"][0]["path"] = "nvidia-cdi-hook"


def _groups(document: Any) -> None:
    document["cdiVersion"] = "0.7.0"
    document["containerEdits"]["additionalGids"] = [44]


def _for_old_podman(case: FaultCase) -> None:
    _toolkit(_groups)(case)
    programs = case.readings.setdefault(node_readings.PROGRAMS, {})
    programs["podman"] = {"path": "/usr/bin/podman", "version": "4.9.3"}


def _for_older_podman(case: FaultCase) -> None:
    """Podman 4.3.1 refuses the version 0.6.0, whatever the spec has."""
    replace(case, SPEC, "cdiVersion: '0.5.0'", "cdiVersion: '0.6.0'")
    programs = case.readings.setdefault(node_readings.PROGRAMS, {})
    programs["podman"] = {"path": "/usr/bin/podman", "version": "4.3.1"}


def _broken_yaml(case: FaultCase) -> None:
    case.write(SPEC, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [\n")


def _unknown_field(case: FaultCase) -> None:
    replace(case, SPEC, "kind: nvidia.com/gpu", "kind: nvidia.com/gpu\nnotes: by hand")


def _newer(case: FaultCase) -> None:
    replace(case, SPEC, "cdiVersion: '0.5.0'", "cdiVersion: '9.9.0'")


def _twice(case: FaultCase) -> None:
    shutil.copy(case.path(SPEC), case.path("/etc/cdi/nvidia-old.yaml"))


def _stale_and_hidden(case: FaultCase) -> None:
    document = driver.toolkit_spec(case, version="535.54.03")
    case.path("/var/run/cdi/x").parent.mkdir(exist_ok=True)
    shutil.move(case.path(SPEC), case.path("/var/run/cdi/nvidia.yaml"))
    case.write("/etc/cdi/nvidia.json", json.dumps(document))


def hidden_with_a_lost_hook(case: FaultCase) -> None:
    """Add a spec with a missing hook, and a spec of higher priority that overrides it."""
    document = driver.toolkit_spec(case)
    document["containerEdits"]["hooks"][0]["path"] = "/usr/bin/nvidia-ctk-of-old"
    case.write("/var/run/cdi/nvidia.yaml", case.path(SPEC).read_text(encoding="utf-8"))
    case.remove(SPEC)
    case.write("/etc/cdi/nvidia.json", json.dumps(document))


def _misnamed(case: FaultCase) -> None:
    case.path(SPEC).rename(case.path("/etc/cdi/nvidia.yml"))


def _anybodys(case: FaultCase) -> None:
    case.path(SPEC).chmod(0o666)


def _foreign(case: FaultCase) -> None:
    os.chown(case.path(SPEC).parent, 1000, 1000)


def _rebooted(case: FaultCase) -> None:
    case.write("/proc/sys/kernel/random/boot_id", "e0a1c7de-33f5-4f5b-9a51-6d8e1f6d7c11\n")


def _replaced(case: FaultCase) -> None:
    library = next((case.root / LIBRARY_DIR.lstrip("/")).glob("libcuda.so.5*"))
    with library.open("ab") as stream:
        stream.write(bytes(4096))


def _remade(case: FaultCase) -> None:
    """Destroy a MIG device; its device node remains."""
    capabilities = case.root / "proc/driver/nvidia/capabilities/gpu0/mig"
    shutil.rmtree(capabilities / "gi13")
    profile = Path(case.node.nvml_profile)
    head, mark, rest = profile.read_text(encoding="utf-8").partition("instance 6\n")
    assert mark
    profile.write_text(head + rest[rest.index("gpu\n") :], encoding="utf-8")


def _no_spec(case: FaultCase) -> None:
    case.remove(SPEC)
    replace(case, TOOLKIT, 'mode = "auto"', 'mode = "cdi"')


def _no_persistenced(case: FaultCase) -> None:
    case.remove("/run/nvidia-persistenced/socket")


def _no_refresh(case: FaultCase) -> None:
    for suffix in ("service", "path"):
        case.write(f"/usr/lib/systemd/system/nvidia-cdi-refresh.{suffix}", "[Unit]\n")
    units = case.readings[node_readings.UNITS]
    units["nvidia-cdi-refresh.path"] = driver.unit()
    units["nvidia-cdi-refresh.service"] = driver.unit("failed", result="exit-code")


def _no_egl(document: Any) -> None:
    mounts = document["containerEdits"]["mounts"]
    mounts[:] = [one for one in mounts if "libEGL_nvidia" not in one["containerPath"]]


def _deep_manifest(case: FaultCase) -> None:
    """Replace a manifest by one that is nested more deeply than Python reads it."""
    _toolkit(lambda _document: None)(case)
    case.write("/etc/vulkan/icd.d/nvidia_icd.json", "[" * 100_000 + "]" * 100_000)


BROKEN = [
    Broken("no-spec", "specs.present", _no_spec, is_warning=True),
    Broken("spec-is-no-yaml", "specs.valid", _broken_yaml),
    Broken("spec-with-an-unknown-field", "specs.valid", _unknown_field),
    Broken("spec-of-a-newer-cdi", "specs.valid", _newer),
    Broken("spec-named-yml", "specs.names", _misnamed, is_warning=True),
    Broken("two-specs-in-conflict", "specs.conflicts", _twice),
    Broken("stale-spec-hidden-by-another", "specs.driver", _stale_and_hidden, is_warning=True),
    Broken("hook-lost-in-a-hidden-spec", "specs.hooks", hidden_with_a_lost_hook, is_warning=True),
    Broken("spec-that-anybody-may-write", "specs.owners", _anybodys, is_warning=True),
    Broken("specs-of-another-user", "specs.owners", _foreign, is_warning=True),
    Broken("spec-too-new-for-podman", "specs.engines", _for_old_podman),
    Broken("spec-too-new-for-podman-4.3", "specs.engines", _for_older_podman),
    Broken("refresh-unit-failed", "specs.refresh", _no_refresh, is_warning=True),
    Broken("spec-of-another-driver", "specs.driver", _toolkit(lambda _: None, version="570.86.10")),
    Broken("spec-of-an-earlier-boot", "specs.fresh", _rebooted),
    Broken("libcuda-replaced-in-place", "specs.fresh", _replaced),
    Broken("hook-missing", "specs.hooks", lambda s: s.remove(DEFAULT_HOOK_PATH)),
    Broken(
        "hook-not-executable",
        "specs.hooks",
        lambda s: s.path(DEFAULT_HOOK_PATH).chmod(0o644),
    ),
    Broken("hook-without-a-directory", "specs.hooks", _toolkit(_relative_hook)),
    Broken("mounted-file-missing", "specs.mounts", _toolkit(_missing_mount)),
    Broken("socket-of-persistenced-missing", "specs.mounts", _no_persistenced),
    Broken("given-node-missing", "specs.nodes", _toolkit(_missing_node)),
    Broken("majors-of-an-earlier-boot", "specs.majors", _toolkit(_old_major)),
    Broken("gpu-exchanged", "specs.devices", _toolkit(_another_gpu)),
    Broken("gpu-not-in-the-spec", "specs.devices", _toolkit(_without_a_gpu), "h100x8"),
    Broken("mig-changed", "specs.instances", _remade, "a100-mig"),
    Broken("params-not-masked", "specs.params", _toolkit(_no_mask), is_warning=True),
    Broken("egl-without-its-library", "specs.graphics", _toolkit(_no_egl), is_warning=True),
    Broken("manifest-nested-deeply", "specs.graphics", _deep_manifest, is_warning=True),
]
