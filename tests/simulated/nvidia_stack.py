# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's container toolkit 1.20 on a simulated node: its files and its behaviour.

`cdi_spec` is what `nvidia-ctk cdi generate` writes, `cdi_edited` a config.json as the runtime in
its CDI and jit-cdi modes leaves it, `legacy_edited` as in its legacy mode, whose hook then gives
the container its GPUs. The hooks are programs that really run (nvidia_hook.py); `programs` puts
launchers of NVIDIA's names in a directory.
"""

from __future__ import annotations

import copy
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.simulated import nvidia_files
from tests.simulated.node import SimulatedNode

CDI_HOOK, LEGACY_HOOK = "nvidia-cdi-hook", "nvidia-container-runtime-hook"
OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_SOCKET_OPTIONS = ["nosuid", "nodev", "rbind", "rprivate", "noexec"]
_CONTROL = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
_PROGRAM = Path(__file__).with_name("nvidia_hook.py")
PLAN = "nvidia-legacy.json"

# What libnvidia-container mounts, by capability: library names, programs.
_LIBRARIES = {
    "utility": ("nvidia-ml", "nvidia-cfg", "nvidia-nscq"),
    "compute": (
        "cuda", "cudadebugger", "nvidia-opencl", "nvidia-gpucomp", "nvidia-ptxjitcompiler",
        "nvidia-allocator", "nvidia-compiler", "nvidia-pkcs11", "nvidia-pkcs11-openssl3",
        "nvidia-nvvm", "nvidia-tileiras",
    ),
    "video": ("vdpau_nvidia", "nvidia-encode", "nvidia-opticalflow", "nvcuvid"),
    "graphics": (
        "nvidia-eglcore", "nvidia-glcore", "nvidia-tls", "nvidia-glsi", "nvidia-fbc",
        "nvidia-rtcore", "nvoptix", "GLX_nvidia", "EGL_nvidia", "GLESv2_nvidia",
        "GLESv1_CM_nvidia", "nvidia-glvkspirv",
    ),
    "ngx": ("nvidia-ngx",),
}  # fmt: skip
_BINARIES = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}


def programs(place: Path) -> Path:
    """Write NVIDIA's hooks into `place`, and return `place`."""
    place.mkdir(parents=True, exist_ok=True)
    for name in (CDI_HOOK, LEGACY_HOOK, "nvidia-ctk"):
        path = place / name
        path.write_text(f'#!/bin/sh\nexec /usr/bin/python3 -IS {_PROGRAM} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return place


def files(node: SimulatedNode) -> nvidia_files.Files:
    """Return the driver's files as the toolkit finds them."""
    return nvidia_files.find(node.driver_root, str(node.node.driver.version))


def cdi_spec(node: SimulatedNode, hooks: Path, kind: str = "nvidia.com/gpu") -> dict[str, Any]:
    """Return what `nvidia-ctk cdi generate` writes; `hooks` is the directory of `programs`."""
    own = {name: [_node(node, path) for path in paths] for name, paths in _devices(node).items()}
    every = {entry["path"]: entry for entries in own.values() for entry in entries}
    devices = [*own.items(), ("all", list(every.values()))]
    driver = files(node)
    mounted = [*driver.libraries, *driver.binaries, *driver.configs, *driver.firmware]
    mounts = [_mount(driver, path, OPTIONS) for path in mounted]
    mounts += [_mount(driver, path, _SOCKET_OPTIONS) for path in driver.sockets]
    control = [path for path in _CONTROL if Path(node.dev_root + path).exists()]
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": entries}}
            for name, entries in sorted(devices)
        ],
        "containerEdits": {
            "env": [
                f"NVIDIA_CTK_LIBCUDA_DIR={driver.directory}",
                "NVIDIA_VISIBLE_DEVICES=void",
            ],
            "deviceNodes": [_node(node, path) for path in control],
            "hooks": _hooks(driver, hooks),
            "mounts": sorted(mounts, key=lambda m: (m["containerPath"].count("/"), str(m))),
        },
    }


def write_cdi(node: SimulatedNode, path: Path, hooks: Path) -> Path:
    """Write the spec as YAML to `path`, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(cdi_spec(node, hooks), sort_keys=False)
    path.write_text("---\n" + text, encoding="utf-8")
    path.chmod(0o644)
    return path


def cdi_edited(config: dict[str, Any], spec: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a config.json with the edits of the devices `names` of a CDI spec.

    As the CDI library applies them: variables are appended after those that exist.
    """
    edited = copy.deepcopy(config)
    devices = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    for edits in [*(devices[name] for name in names), spec["containerEdits"]]:
        _apply(edited, edits)
    edited["mounts"].sort(key=lambda mount: mount["destination"].count("/"))
    return edited


def legacy_edited(
    config: dict[str, Any], hooks: Path, node: SimulatedNode | None = None
) -> dict[str, Any]:
    """Return the config.json of the runtime's legacy mode: with its prestart hook.

    With a `node`, the container requests graphics: the files for that are mounted too.
    """
    edited = copy.deepcopy(config)
    if node is not None:
        driver = files(node)
        extra = [p for p in driver.libraries if "/xorg/" in p or "/libnvidia-egl-" in p]
        mounts = [_mount(driver, path, OPTIONS) for path in [*extra, *driver.configs]]
        links = [pair for pair in driver.links if "gbm" in pair[1] or "-egl-" in pair[1]]
        _apply(edited, {"mounts": mounts, "hooks": _graphics_hooks(driver, hooks, links)})
    hook = {"path": str(hooks / LEGACY_HOOK), "args": [LEGACY_HOOK, "prestart"]}
    edited.setdefault("hooks", {}).setdefault("prestart", []).append(hook)
    return edited


def legacy_plan(
    node: SimulatedNode, root: Path, names: list[str], capabilities: str = "utility,compute"
) -> dict[str, Any]:
    """Return what libnvidia-container does for a container with the root file system `root`.

    The hook executes the file PLAN of the bundle, so that a test can add an error to it. `names`
    are devices of the spec.
    """
    driver = files(node)
    wanted = capabilities.split(",")
    libraries = {name for word in wanted for name in _LIBRARIES.get(word, ())}
    binaries = {name for word in wanted for name in _BINARIES.get(word, ())}
    is_debian = (root / "etc/debian_version").exists()
    place = "/usr/lib/x86_64-linux-gnu" if is_debian else "/usr/lib64"
    mounts = []
    for path in nvidia_files.cached(node.driver_root):
        # The files in the loader's cache that have the names of the driver's files.
        name = os.path.basename(path)
        if name.endswith(f".so.{driver.version}") and name[3:].partition(".so")[0] in libraries:
            mounts.append(
                {"source": driver.root.rstrip("/") + path, "target": f"{place}/{name}", "ro": True}
            )
    named = [path for path in driver.binaries if os.path.basename(path) in binaries]
    mounts += [_bound(driver, path) for path in [*named, *driver.firmware]]
    sockets = driver.sockets if "utility" in wanted else ()
    mounts += [{**_bound(driver, path), "ro": False} for path in sockets]
    nodes = ["/dev/nvidiactl"]
    nodes += ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"] if "compute" in wanted else []
    nodes += ["/dev/nvidia-modeset"] if {"graphics", "display"}.intersection(wanted) else []
    devices = _devices(node)
    nodes += [path for name in names for path in devices[name]]
    nodes = list(dict.fromkeys(path for path in nodes if Path(node.dev_root + path).exists()))
    links = [("libcuda.so.1", f"{place}/libcuda.so")]
    if "graphics" in wanted:
        links.append((f"libGLX_nvidia.so.{driver.version}", f"{place}/libGLX_indirect.so.0"))
    if "video" in wanted:
        links.append(("libnvidia-opticalflow.so.1", f"{place}/libnvidia-opticalflow.so"))
    return {
        "mounts": mounts,
        "nodes": [{"source": node.dev_root + path, "target": path} for path in nodes],
        "rules": [_rule(node, path) for path in nodes],
        "links": links,
        "folders": [place],
    }


def write_plan(bundle: Path, plan: dict[str, Any]) -> None:
    """Write the plan to the path that the legacy hook reads."""
    (bundle / PLAN).write_text(json.dumps(plan), encoding="utf-8")


def _devices(node: SimulatedNode) -> dict[str, list[str]]:
    """Return the device nodes of each device by its names: index and UUID."""
    nodes_of: dict[str, list[str]] = {}
    for gpu in node.node.gpus:
        parent = f"/dev/nvidia{gpu.minor}"
        if gpu.lost:
            continue
        if not gpu.instances:
            nodes_of[str(gpu.index)] = nodes_of[str(gpu.uuid)] = [parent]
        for instance in gpu.instances:
            minors = (instance.gpu_instance_minor, instance.compute_instance_minor)
            paths = [parent, *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors)]
            nodes_of[f"{gpu.index}:{instance.index}"] = nodes_of[instance.uuid] = paths
    return nodes_of


def _node(node: SimulatedNode, path: str) -> dict[str, Any]:
    host = node.dev_root.rstrip("/") + path
    status = os.stat(host)
    entry: dict[str, Any] = {"path": path}
    if host != path:
        entry["hostPath"] = host
    entry["major"] = os.major(status.st_rdev)
    if os.minor(status.st_rdev):
        entry["minor"] = os.minor(status.st_rdev)
    entry.update(fileMode=stat.S_IMODE(status.st_mode), permissions="rwm")
    return entry


def _bound(driver: nvidia_files.Files, path: str) -> dict[str, Any]:
    return {"source": driver.host(path), "target": path, "ro": True}


def _mount(driver: nvidia_files.Files, path: str, options: list[str]) -> dict[str, Any]:
    return {"hostPath": driver.host(path), "containerPath": path, "options": list(options)}


def _hooks(found: nvidia_files.Files, place: Path) -> list[dict[str, Any]]:
    """Return the hooks of a spec; the loader gets each directory that has a driver's library."""
    driver = [path for path in found.libraries if path.endswith(f".so.{found.version}")]
    folders = dict.fromkeys(os.path.dirname(path) for path in driver if "/xorg/" not in path)
    return _called(
        place,
        ["create-symlinks", *_link_words(found.links)],
        ["enable-cuda-compat", f"--host-driver-version={found.version}"],
        ["update-ldcache", *(word for folder in folders for word in ("--folder", folder))],
        ["disable-device-node-modification"],
        ["update-application-profile"],
    )


def _graphics_hooks(
    driver: nvidia_files.Files, place: Path, links: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    return _called(
        place,
        ["create-symlinks", *_link_words(links)],
        ["update-ldcache", "--folder", driver.directory],
    )


def _link_words(links: Sequence[tuple[str, str]]) -> list[str]:
    return [word for target, path in links for word in ("--link", f"{target}::{path}")]


def _called(place: Path, *calls: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "hookName": "createContainer",
            "path": str(place / CDI_HOOK),
            "args": [CDI_HOOK, *words],
            "env": ["NVIDIA_CTK_DEBUG=false"],
        }
        for words in calls
    ]


def _apply(config: dict[str, Any], edits: dict[str, Any]) -> None:
    config["process"].setdefault("env", []).extend(edits.get("env") or ())
    linux = config["linux"]
    devices = linux.setdefault("devices", [])
    for entry in edits.get("deviceNodes") or ():
        major, minor = entry["major"], entry.get("minor", 0)
        devices[:] = [device for device in devices if device["path"] != entry["path"]]
        device = {"path": entry["path"], "type": "c", "major": major, "minor": minor}
        devices.append({**device, "fileMode": entry["fileMode"]})
        rule = {"allow": True, "type": "c", "major": major, "minor": minor}
        linux["resources"]["devices"].append({**rule, "access": entry["permissions"]})
    for mount in edits.get("mounts") or ():
        place = mount["containerPath"]
        others = [
            mount_entry for mount_entry in config["mounts"] if mount_entry["destination"] != place
        ]
        entry = {"destination": place, "source": mount["hostPath"], "type": "bind"}
        config["mounts"] = [*others, {**entry, "options": mount["options"]}]
    for hook in edits.get("hooks") or ():
        stage = config.setdefault("hooks", {}).setdefault(hook["hookName"], [])
        stage.append({key: value for key, value in hook.items() if key != "hookName"})


def _rule(node: SimulatedNode, path: str) -> str:
    number = os.stat(node.dev_root + path).st_rdev
    return f"c {os.major(number)}:{os.minor(number)} rw"
