# SPDX-License-Identifier: Apache-2.0
"""Pods with AMD GPUs, and a container to which AMD's toolkit gave some."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from tests.record import containers, images
from tests.record.box import Box
from tests.record.case import Case

_NODES = (("/dev/kfd", 238, 0), ("/dev/dri/card25", 226, 25), ("/dev/dri/renderD152", 226, 152))
_OTHER = ("/dev/dri/renderD160", 226, 160)
FOUND: list[Case] = []


def _pod(*limits: dict[str, object], **more: object) -> dict[str, Any]:
    names = ("main", "side")
    parts = [
        {"name": name, "image": "rocm/pytorch", "resources": {"limits": amounts}}
        for name, amounts in zip(names, limits, strict=False)
    ]
    spec = {"containers": parts, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer"}, "spec": spec}


PODS = {
    "one": _pod({"amd.com/gpu": 1}),
    "two": _pod({"amd.com/gpu": 2}, {"amd.com/gpu": 1}, runtimeClassName="amd"),
    "too-many": _pod({"amd.com/gpu": 9}),
    "mode": _pod({"amd.com/cpx_nps4": 1}),
    "both": _pod({"amd.com/gpu": 1, "nvidia.com/gpu": 1}),
    "wrong": _pod({"amd.com/gpu": "half"}),
}
_CONFIG = "version: v1\nflags: {amd: {resourceNamingStrategy: mixed}}\n"
_SHARED = """\
version: v1
sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4, memory: fair}]}}
"""


def cases() -> list[Case]:
    """Return all cases."""
    if not FOUND:
        _pods()
        _compared()
    return FOUND


def _pods() -> None:
    for name, options in (
        ("one", ()),
        ("one", ("-o", "json")),
        ("two", ()),
        ("too-many", ()),
        ("mode", ()),
        ("both", ()),
        ("wrong", ()),
    ):
        title = "-".join(["explain-pod", name, *options[1:]])
        _explained(title, "amd", name, *options)
    mixed = ("--plugin-config", "plugin.yaml")
    cpx = ("--inventory", "mi300x-cpx")
    _explained("explain-pod-partition", "amd", "mode", *cpx, *mixed, plugin=_CONFIG)
    _explained("explain-pod-shared", "amd", "one", *mixed, plugin=_SHARED)
    _explained("explain-pod-mixed-node", "amd", "both", "--inventory", "mixed")
    _explained("explain-pod-driver-root", "amd", "one", "--driver-root", "/nowhere")
    _explained("explain-pod-no-driver", "empty", "one")


def _explained(name: str, scene: str, pod: str, *words: str, plugin: str = "") -> None:
    def run(box: Box) -> None:
        box.write("pod.yaml", json.dumps(PODS[pod]))
        if plugin:
            box.write("plugin.yaml", plugin)
        box.gpuhook("explain", "pod.yaml", *words)

    FOUND.append(Case("amd", name, scene, run))


def _compared() -> None:
    for name, nodes in (("same", _NODES), ("another-gpu", (*_NODES[:2], _OTHER))):
        FOUND.append(Case("amd", f"compare-{name}", "amd", partial(_compare, nodes)))


def _compare(nodes: tuple[tuple[str, int, int], ...], box: Box) -> None:
    """Compare a container of AMD's runtime, which requests the fourth GPU."""
    images.root("debian")
    devices = [
        {"path": path, "type": "c", "major": major, "minor": minor} for path, major, minor in nodes
    ]
    config = images.config(["AMD_VISIBLE_DEVICES=3"])
    config["linux"]["devices"] = devices
    config["hooks"] = {
        "poststop": [
            {
                "path": "/usr/local/bin/amd-ctk",
                "args": ["amd-ctk", "gpu-tracker", "release", "c1"],
            }
        ]
    }
    box.write("bundle/config.json", json.dumps(config))
    pid = containers.start(images.ROOT)
    for path, major, minor in nodes:
        place = Path(f"/proc/{pid}/root{path}")
        place.parent.mkdir(exist_ok=True)
        images.node(str(place), major, minor)
    ticks = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[19]
    state = {
        "id": "c1",
        "init_process_pid": pid,
        "init_process_start": int(ticks),
        "config": {"labels": [f"bundle={images.BUNDLE}"]},
    }
    box.write("/run/runc/c1/state.json", json.dumps(state))
    assert os.path.exists(f"/proc/{pid}")
    box.gpuhook("compare", "c1", "-o", "wide")
