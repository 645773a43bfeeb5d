# SPDX-License-Identifier: Apache-2.0
"""Each requested name, the device that it resolves to, and the edits in its spec file."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import yaml

from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError
from gpuhook.host import bounded_yaml
from gpuhook.host.error_text import fault_document
from gpuhook.host.hot import files
from gpuhook.request import replicas
from gpuhook.request.resolve import resolve_names
from gpuhook.vendors.catalogue import vendor_of_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.request.parse import Source
    from gpuhook.request.resolve import Grant
    from gpuhook.vendors.interface import VendorNode

# How a name resolves to a device.
BY_NAME, BY_ALIAS, BY_REPLICA, BY_ALL, FILES_ONLY = "name", "alias", "replica", "all", "files-only"
BY_SHORT_FORM = "short-form"


def device_trace(
    names: Iterable[str],
    node: VendorNode,
    capabilities: frozenset[str],
    source: Source | None,
) -> list[dict[str, Any]]:
    """Return the devices of each name, in order, and the fault of a name without a device.

    `given_by` of a device with several names is the first of them. `source` is the source of the
    request.
    """
    given: dict[str, str] = {}
    found = []
    for name in names:
        try:
            grant = resolve_names([name], capabilities, node, source)
        except GpuhookError as error:
            found.append({**_entry(name, BY_NAME), "fault": fault_document(error)})
            continue
        if not grant.devices:
            found.append(_entry(name, FILES_ONLY))
        for qualified in grant.devices:
            entry = _device(name, qualified, node, capabilities)
            if name in grant.short_forms:
                entry["by"] = BY_SHORT_FORM
            entry["given_by"] = given.setdefault(qualified, name)
            found.append(entry)
    return found


def spec_trace(
    grant: Grant, node: VendorNode, capabilities: frozenset[str]
) -> list[dict[str, Any]]:
    """Return the edits that the spec files have for all of their devices."""
    return [
        {
            "spec": spec.path,
            "line": _lines(spec.path).get(""),
            "kind": spec.kind,
            **edits(node.filter_edits(spec, spec.edits, capabilities)),
        }
        for spec in grant.specs
    ]


def left_out(grant: Grant, node: VendorNode, capabilities: frozenset[str]) -> list[dict[str, Any]]:
    """Return the nodes, mounts, libraries and links that the capabilities leave out."""
    parts = [(spec, spec.edits) for spec in grant.specs]
    own = [qualified for qualified in grant.devices if node.serves(qualified)]
    registry = node.registry_for(own)
    parts += [registry.device(qualified) for qualified in own]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for spec, whole in parts:
        needs = _needs(whole)
        for what, path in _missing(spec, whole, node, capabilities):
            needed = needed_by(path, node, capabilities, needs)
            found[what, path] = {"what": what, "path": path, "needed_by": needed}
    return list(found.values())


def needed_by(
    path: str,
    node: VendorNode,
    capabilities: frozenset[str],
    needs: Mapping[str, frozenset[str]],
) -> list[str]:
    """Return the capabilities of which a container needs one for the file at `path`.

    `needs` are the capabilities of files whose names do not imply them.
    """
    if path in needs:
        return sorted(needs[path])
    return sorted(vendor_of_node(node).requests.lacking_capabilities(path, capabilities))


def edits(given: ContainerEdits) -> dict[str, Any]:
    """Return ContainerEdits as the document has them."""
    return {
        "nodes": [one["path"] for one in given.get("deviceNodes") or ()],
        "mounts": [
            {"path": mount["containerPath"], "source": mount["hostPath"]}
            for mount in given.get("mounts") or ()
        ],
        "env": list(given.get("env") or ()),
        "hooks": [hook(one) for one in given.get("hooks") or ()],
    }


def hook(one: Any) -> dict[str, Any]:
    """Return a hook of CDI, or of config.json with its stage, as the document has it."""
    args = one.get("args")
    return {
        "stage": str(one.get("hookName") or ""),
        "path": str(one.get("path")),
        "args": [str(word) for word in args] if isinstance(args, list) else [],
    }


def _device(
    name: str, qualified: str, node: VendorNode, capabilities: frozenset[str]
) -> dict[str, Any]:
    spec, whole = node.registry_for([qualified]).device(qualified)
    device = qualified.partition("=")[2]
    return {
        **_entry(name, _reason(name, qualified, node)),
        "device": qualified,
        "spec": spec.path,
        "line": _lines(spec.path).get(device),
        **edits(node.filter_edits(spec, whole, capabilities)),
    }


def _reason(name: str, qualified: str, node: VendorNode) -> str:
    kind, equals, rest = name.partition("=")
    plain = rest if equals and "/" in kind else name
    if plain == "all":
        return BY_ALL
    if replicas.SEPARATOR in plain:
        return BY_REPLICA
    is_named = qualified in (name, f"{node.kind}={plain}")
    return BY_NAME if is_named else BY_ALIAS


def _entry(name: str, reason: str) -> dict[str, Any]:
    return {
        "name": name,
        "by": reason,
        "given_by": name,
        "device": None,
        "spec": None,
        "line": None,
        **edits({}),
        "fault": None,
    }


def _missing(
    spec: Compiled, whole: ContainerEdits, node: VendorNode, capabilities: frozenset[str]
) -> list[tuple[str, str]]:
    """Return (kind, path) of the parts of `whole` that `capabilities` leave out."""
    kept = edits(node.filter_edits(spec, whole, capabilities))
    all_of_it = edits(whole)
    found = [("node", path) for path in all_of_it["nodes"] if path not in kept["nodes"]]
    found += [("mount", one["path"]) for one in all_of_it["mounts"] if one not in kept["mounts"]]
    jobs = node.take_jobs(whole, capabilities)[1]
    libraries = {path for job in jobs for path, _ in job.libraries}
    links = {path for job in jobs for _, path in job.links}
    for job in hook_args.own_jobs(whole):
        found += [("library", path) for path, _ in job.libraries if path not in libraries]
        found += [("link", path) for _, path in job.links if path not in links]
    return found


def _needs(whole: ContainerEdits) -> dict[str, frozenset[str]]:
    """Return the capabilities by file that gpuhook's hooks name."""
    jobs = hook_args.own_jobs(whole)
    return {path: needs for job in jobs for path, needs in job.needs.items()}


_MAX_SIZE = 16 << 20


@lru_cache(maxsize=64)
def _lines(path: str) -> dict[str, int]:
    """Return the line of each device by name, and the line of the shared edits by ""."""
    try:
        # JSON is YAML except for tabs between tokens.
        text = files.read(path, _MAX_SIZE).replace(b"\t", b" ")
        root = bounded_yaml.compose(text)
    except (OSError, GpuhookError, yaml.YAMLError):
        return {}
    parts = _parts(root)
    found = {}
    if "containerEdits" in parts:
        found[""] = _line(parts["containerEdits"])
    devices = parts.get("devices")
    for device in devices.value if isinstance(devices, yaml.SequenceNode) else ():
        name = _parts(device).get("name")
        if isinstance(name, yaml.ScalarNode):
            found[str(name.value)] = _line(name)
    return found


def _parts(node: object) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {str(key.value): value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
