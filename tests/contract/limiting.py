# SPDX-License-Identifier: Apache-2.0
"""Containers with a limit of GPU memory: the grant, and the limit that the driver enforces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.node.settings_file import load
from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation
from tests.simulated import stub_limits

LIMIT, REQUEST = VOCABULARY.memory_limit_env, VOCABULARY.memory_request_env


def uuid(installation: Installation, index: int) -> str:
    """Return the UUID of the GPU of this index."""
    return str(installation.gpu(index).uuid)


def grant(
    installation: Installation,
    made: Bundle,
    index: int,
    hard: int,
    soft: int,
    *,
    is_asked: bool = False,
    source: str = "/dev/null",
) -> Bundle:
    """Mount a grant of the device plugin, in MiB; another `source` is a tenant's forged mount."""
    limit = MemoryLimit(uuid(installation, index), hard * MIB, soft * MIB, is_asked=is_asked)
    made.mount(Path(source), mount_path(VOCABULARY.memory_prefix, limit), "ro", "rbind")
    return made


def apply_cdi_spec(installation: Installation, made: Bundle, *names: str) -> Bundle:
    """Apply the node's CDI spec to config.json as an engine does."""
    document: Any = load(str(installation.spec))
    devices = {device["name"]: device["containerEdits"] for device in document["devices"]}
    config = made.config()
    oci_spec.apply(config, merged([document["containerEdits"], *(devices[name] for name in names)]))
    made.write(config)
    return made


def enforced_limits(installation: Installation, pid: int) -> dict[str, tuple[int, int]]:
    """Return the limits that the driver enforces for a process's cgroup: hard and soft MiB by
    UUID.
    """
    name = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").split("0::")[1].strip()
    return {
        one.uuid: (one.hard // MIB, one.soft // MIB)
        for one in stub_limits.recorded(installation.node)
        if one.path == f"/sys/fs/cgroup{name}"
    }


def entry(installation: Installation) -> dict[str, Any]:
    """Return the ledger's newest entry."""
    files = [installation.state / "containers" / name for name in installation.entries()]
    return dict(
        max(map(json.loads, (file.read_bytes() for file in files)), key=lambda e: e["since"])
    )


def hooks(made: Bundle) -> list[dict[str, Any]]:
    """Return the createRuntime hooks of config.json."""
    return list((made.config().get("hooks") or {}).get("createRuntime") or [])


def variables(made: Bundle) -> dict[str, str]:
    """Return the variables of config.json."""
    return dict(one.split("=", 1) for one in made.config()["process"]["env"])
