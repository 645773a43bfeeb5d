# SPDX-License-Identifier: Apache-2.0
"""The reader of node.json: the GPUs of this node and their other names, from generate-cdi.

Read only for a name that no spec has. inventory/dump_file.py writes it.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files, state
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_SIZE = 16 << 20


def path() -> str:
    """Return the path of node.json."""
    return os.path.join(state.directory(), "node.json")


def alias(name: str) -> str | None:
    """Return the spec's name of the GPU with another name (PCI bus id, index), None if unknown."""
    found = _section("aliases", dict).get(name.lower())
    return found if isinstance(found, str) else None


def other_names() -> list[str]:
    """Return the names that alias() knows, in lower case."""
    return list(_section("aliases", dict))


def uuids() -> dict[str, str]:
    """Return the UUID of each GPU and MIG instance by the path of its own device node.

    For an instance that is the compute instance's capability node; the node of a GPU with instances
    does not identify its user. {} without a usable node.json. A GPU with an unknown UUID has the
    path itself as its value.
    """
    found = {}
    for gpu in _gpus():
        instances = gpu.get("instances")
        if isinstance(instances, list) and instances:
            found.update(_instances(instances))
            continue
        place, uuid = f"/dev/nvidia{gpu.get('minor')}", str(gpu.get("uuid"))
        found[place] = uuid if uuid.startswith("GPU-") else place
    return found


def memory() -> dict[str, int]:
    """Return the bytes of each GPU by its UUID, without unknown ones."""
    return {
        str(gpu.get("uuid")): gpu["memory_bytes"]
        for gpu in _gpus()
        if isinstance(gpu.get("memory_bytes"), int)
    }


def nvml() -> str:
    """Return the host path of the libnvidia-ml.so.1 that answered, "" if it does not exist."""
    found = _section("driver", dict).get("nvml")
    return found if isinstance(found, str) and os.path.isfile(found) else ""


def versions_and_kinds() -> tuple[str, str, str, list[tuple[str, str, str, str]]]:
    """Return the versions of CUDA, driver, module, and (minor, UUID, capability, brand) of GPUs.

    "" means unknown.
    """
    driver = _section("driver", dict)
    cuda, version, module = (_text(driver, key) for key in ("cuda", "version", "module_version"))
    gpus = [
        (
            str(gpu["minor"]),
            _text(gpu, "uuid"),
            _text(gpu, "compute_capability"),
            _text(gpu, "brand"),
        )
        for gpu in _gpus()
        if isinstance(gpu.get("minor"), int)
    ]
    return cuda, version, module, gpus


def _text(section: dict[str, Any], key: str) -> str:
    value = section.get(key)
    return value if isinstance(value, str) and _is_known(value) else ""


def turns() -> dict[str, dict[str, str]]:
    """Return the time slice and the compute mode of each GPU by UUID, without unknown ones."""
    keys = ("time_slice", "compute_mode")
    return {
        str(gpu.get("uuid")): {key: gpu[key] for key in keys if _is_known(gpu.get(key))}
        for gpu in _gpus()
    }


def _gpus() -> list[dict[str, Any]]:
    return [gpu for gpu in _section("gpus", list) if isinstance(gpu, dict)]


def _is_known(value: object) -> bool:
    return isinstance(value, str) and value != "unknown"


def _instances(instances: list[Any]) -> dict[str, str]:
    known = [one for one in instances if isinstance(one, dict)]
    return {
        vocabulary.capability_node(one["compute_instance_minor"]): str(one.get("uuid"))
        for one in known
        if isinstance(one.get("compute_instance_minor"), int)
    }


def _section(key: str, kind: type[Any]) -> Any:
    """Return a part of node.json, empty if the file is missing or not trusted."""
    try:
        if state.usable(os.lstat(path())):
            node = fastjson.loads(files.read(path(), _MAX_SIZE))
            if isinstance(node, dict) and isinstance(node.get(key), kind):
                return node[key]
    except (OSError, ValueError, GpuhookError):
        return kind()
    return kind()
