# SPDX-License-Identifier: Apache-2.0
"""A node with NVIDIA and AMD GPUs, whose programs find a double of the kernel's controller dmem.

Runtimes make real cgroups; gpuhook and its hook see the double's files in them.
"""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.vendors.amd.hot import amd_token, amd_words
from tests.simulated import build, cgroups, dmem_mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.bundles import Bundle
    from tests.contract.installation import Installation
    from tests.simulated.amd_tree import AmdTree
    from tests.simulated.dmem_mount import DmemMount

_PRELOADED = """#!/bin/sh
LD_PRELOAD={} DMEM_CGROUPS={} exec {} "$@"
"""
LIMIT, REQUEST = amd_words.VOCABULARY.memory_limit_env, amd_words.VOCABULARY.memory_request_env


@dataclass(frozen=True)
class DmemNode:
    """The installation, its AMD GPUs, and the controller."""

    installation: Installation
    tree: AmdTree
    controller: DmemMount

    def device(self, index: int) -> str:
        """Return the id of the AMD device of this index."""
        return next(one.id for _, one in self.tree.node.devices() if one.index == index)

    def region(self, index: int) -> str:
        """Return the region of that device's memory."""
        return f"drm/{self.device(index)}/vram"

    def cgroup(self, pid: int) -> Path:
        """Return the directory of a process's cgroup in the double."""
        name = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").split("0::")[1].strip()
        return self.controller.path / name.lstrip("/")

    def limits(self, pid: int, name: str = "dmem.max") -> dict[str, str]:
        """Return the limits of a process's cgroup by region, without those that are "max"."""
        return read(self.cgroup(pid) / name)

    def grant(self, made: Bundle, index: int, hard: int, soft: int = 0) -> Bundle:
        """Mount a grant of a device plugin, in MiB."""
        limit = MemoryLimit(self.device(index), hard * MIB, soft * MIB)
        made.mount(Path("/dev/null"), mount_path("/var/run/gpuhook/memory", limit), "ro", "rbind")
        return made

    def facts(self, *, without: tuple[str, ...] = (), used: dict[int, int] | None = None) -> None:
        """Set the cgroups `without` the controller, and the MiB that processes have of GPU 0."""
        gpus = self.tree.node.gpus
        capacity = {f"drm/{gpu.pci_address}/vram": gpu.vram_bytes or 0 for gpu in gpus}
        names = {self.name(pid): {self.region(0): size * MIB} for pid, size in (used or {}).items()}
        self.controller.facts.write(capacity, names, without)

    def name(self, pid: int) -> str:
        """Return the name of a process's cgroup in the double."""
        return "/" + str(self.cgroup(pid).relative_to(self.controller.path))


def read(path: Path) -> dict[str, str]:
    """Return the values of a file of dmem by region, without "max" and 0."""
    pairs = (line.split(" ") for line in path.read_text("ascii").splitlines())
    return {region: value for region, value in pairs if value not in ("max", "0")}


def asks_amd(devices: str, *more: str) -> list[str]:
    """Return the variables that request AMD devices, and more."""
    return [f"AMD_VISIBLE_DEVICES={devices}", *more]


@contextmanager
def serving(installation: Installation, tree: AmdTree, place: Path) -> Iterator[DmemNode]:
    """Yield the installation with the AMD GPUs of `tree`, and the controller."""
    with dmem_mount.mounted(place, cgroups.mounted(), capacity={}) as controller:
        bindir = place / "bin"
        bindir.mkdir()
        shutil.copy(installation.bindir / "gpuhook-runtime", bindir)
        for name in ("gpuhook", "gpuhook-hook"):
            paths = build.dmem_preload(), controller.path, installation.bindir / name
            text = _PRELOADED.format(*paths)
            (bindir / name).write_text(text, encoding="utf-8")
            (bindir / name).chmod(0o755)
        made = DmemNode(replace(installation, bindir=bindir), tree, controller)
        made.facts()
        write_spec(made)
        yield made


def write_spec(node: DmemNode) -> None:
    """Write a CDI spec of the AMD devices."""
    root = node.tree.root
    kfd = {"path": amd_words.KFD, "hostPath": str(root / amd_words.KFD.lstrip("/"))}
    devices = []
    for _, device in node.tree.node.devices():
        own = {"path": device.render_path, "hostPath": str(root / device.render_path.lstrip("/"))}
        edits = {"deviceNodes": [kfd, own]}
        devices += [{"name": n, "containerEdits": edits} for n in (str(device.index), device.id)]
    spec = {
        "cdiVersion": "0.6.0",
        "kind": amd_words.KIND,
        "annotations": {amd_words.TOKEN: amd_token.token(str(root))},
        "devices": devices,
    }
    (node.installation.specs / "amd.json").write_text(json.dumps(spec), encoding="utf-8")
