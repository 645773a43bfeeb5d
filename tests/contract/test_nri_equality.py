# SPDX-License-Identifier: Apache-2.0
"""The same request by every integration gives the same config.json, and the same view from inside.

containerd 2.1 has all integrations but the prestart hook, which changes a container that exists:
its result is compared from inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract import roots
from tests.contract.installation import KIND, Installation
from tests.contract.integrations import Integrations
from tests.contract.nri_node import SLEEP, NriNode, nri_node
from tests.contract.test_integrations import CACHE, LINKS, LOOKED_UP
from tests.contract.views import View, questions

REQUESTS = {"one": "2", "two": "0,3", "all": "all"}
# An engine that applies a spec itself cannot filter it, so the others get all of it.
ALL = {"NVIDIA_DRIVER_CAPABILITIES": "all"}
NRI = {"nri-cdi": (), "nri-expanded": ("--expanded",)}


@pytest.fixture(scope="module")
def node(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NriNode]:
    """Yield a node with containerd 2.1."""
    with nri_node(node8, tmp_path_factory.mktemp("nri"), "forky") as made:
        yield made


def config(node: NriNode, integration: str, value: str) -> dict[str, Any]:
    """Return the config.json of a container that requests GPUs by an integration."""
    given = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": value, **ALL})
    if integration in NRI:
        with node.plugin(*NRI[integration]):
            return _config(node, "runc", given)
    if integration == "wrapper":
        return _config(node, "nvidia", given)
    names = tuple(f"{KIND}={name}" for name in value.split(","))
    return _config(node, "runc", Allocation(envs=ALL, cdi_devices=names))


def _config(node: NriNode, handler: str, given: Allocation) -> dict[str, Any]:
    with node.cri.pod("equal", handler, "chosen") as pod:
        made = node.cri.container(pod, SLEEP, given)
        task = node.place / "state/io.containerd.runtime.v2.task/k8s.io" / made.id
        return dict(json.loads((task / "config.json").read_text(encoding="utf-8")))


def devices(spec: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Return the device nodes."""
    listed = spec["linux"].get("devices") or []
    keys = ("path", "type", "major", "minor", "fileMode", "uid", "gid")
    return {tuple(one.get(key) or 0 for key in keys) for one in listed}


def rules(spec: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Return the rules of the device cgroup."""
    listed = spec["linux"]["resources"]["devices"]
    keys = ("allow", "type", "major", "minor", "access")
    return {tuple(one.get(key) for key in keys) for one in listed}


def mounts(spec: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the driver's mounts by path: source, type and options.

    The option `bind` makes a bind mount of one without a type.
    """
    return {
        one["destination"]: (one["source"], one.get("type", "bind"), frozenset(one["options"]))
        for one in spec["mounts"]
        if "nvidia" in one["source"] or "driver" in one["source"]
    }


def variables(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables, without the one that the request itself sets or leaves out."""
    pairs = dict(entry.split("=", 1) for entry in spec["process"]["env"])
    pairs.pop("NVIDIA_VISIBLE_DEVICES", None)
    return pairs


def hooks(spec: dict[str, Any]) -> list[Any]:
    """Return the hooks by stage. The wrapper does their work itself.

    Their environment is that of the hook's launcher, which is the same for the hook.
    """
    return sorted(
        (stage, one["path"], one["args"])
        for stage, found in (spec.get("hooks") or {}).items()
        for one in found
    )


@pytest.mark.parametrize("request_", REQUESTS)
def test_config_json(request_: str, node: NriNode) -> None:
    """Nodes, rules, mounts, variables and hooks."""
    found = {
        integration: config(node, integration, REQUESTS[request_])
        for integration in ("cdi", "wrapper", *NRI)
    }
    expected = found["cdi"]
    assert len(devices(expected)) > 4
    assert len(mounts(expected)) > 10
    for integration, spec in found.items():
        for part in (devices, rules, mounts, variables):
            assert part(spec) == part(expected), (integration, part.__name__)
        if integration != "wrapper":
            assert hooks(spec) == hooks(expected), integration
    assert hooks(found["wrapper"]) == []
    assert hooks(expected)


def facts(view: View) -> dict[str, Any]:
    """Return what a container has of its GPUs, without what depends on the engine."""
    return {
        "nodes": {
            path: (one.major, one.minor, one.mode, one.uid, one.gid, one.allowed)
            for path, one in view.gpus().items()
        },
        "mounts": {
            path: one.options - {"relatime"}
            for path, one in view.mounts.items()
            if "nvidia" in path or "libcuda" in path
        },
        "links": {path: (one.kind, one.target) for path, one in view.paths.items()},
        "libraries": view.runs[0].found(),
        "cache": [line for line in view.runs[1].output.splitlines() if "nvidia" in line],
        "capabilities": view.values("NVIDIA_DRIVER_CAPABILITIES"),
    }


def test_view_from_inside(
    node: NriNode, node8: Installation, enter: Integrations, tmp_path: Path
) -> None:
    """Also of the prestart hook, and of the wrapper without an engine."""
    asked = questions(*LINKS, runs=[LOOKED_UP, CACHE])
    given = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "2", **ALL})
    found = {}
    for integration, options in NRI.items():
        with node.plugin(*options), node.cri.pod("seen", "runc", "chosen") as pod:
            found[integration] = facts(node.cri.view(pod, given, *asked))
    for integration in ("runc", "runc-prestart"):
        root = roots.with_ldconfig(roots.copy("debian", tmp_path / integration))
        env = [f"{name}={value}" for name, value in ALL.items()]
        result = enter.through(integration, root, ["/probe", *asked], "2", env)
        found[integration] = facts(result.view)
    expected = found["runc"]
    assert node8.device(2) in expected["nodes"]
    assert len(expected["mounts"]) > 10
    for integration, seen in found.items():
        for part, value in seen.items():
            assert value == expected[part], (integration, part)
