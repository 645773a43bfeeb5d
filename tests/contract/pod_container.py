# SPDX-License-Identifier: Apache-2.0
"""A container of the chart's pods, run by runc with the rights that its manifest states.

The manifest is translated as containerd translates it: capabilities, no new privileges, the default
seccomp profile, a read-only root, masked paths, and volumes. A directory of the test is the root
directory of the Kubernetes node. The container has this machine's network and pids.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract import bundles
from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import Bundle
from tests.contract.default_seccomp import default_seccomp

# Where a container has the simulated node: its /proc and /sys, which a real pod has by itself.
NODE = "/node"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links of a merged /usr


def every_capability() -> list[str]:
    """Return the names of the capabilities that this process has."""
    names = subprocess.check_output(["setpriv", "--list-caps"], text=True).split()
    bounding = int(status(os.getpid())["CapBnd"], 16)
    return [f"CAP_{name.upper()}" for number, name in enumerate(names) if bounding >> number & 1]


def status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@dataclass(frozen=True)
class PodContainer:
    """The only container of a DaemonSet's pod.

    `node` is the root directory of the node that has the host's paths, `configs` the directory with
    the ConfigMap. `without` are capabilities (CAP_KILL, ...) that are taken from the manifest's.
    `image` is the root file system of gpuhook's image; None: this machine's programs.
    """

    pod: Mapping[str, Any]
    node: Path
    configs: Path | None = None
    without: Collection[str] = ()
    image: Path | None = None

    @property
    def container(self) -> Mapping[str, Any]:
        """Return the container's part of the manifest."""
        (found,) = self.pod["containers"]
        return dict(found)

    @property
    def security(self) -> Mapping[str, Any]:
        """Return the container's security context."""
        return dict(self.container["securityContext"])

    @property
    def capabilities(self) -> list[str]:
        """Return the capabilities of its process."""
        if self.security.get("privileged"):
            given = every_capability()
        else:
            assert self.security["capabilities"]["drop"] == ["ALL"]
            given = [f"CAP_{name}" for name in self.security["capabilities"].get("add", ())]
        return [name for name in given if name not in self.without]

    def environment(self) -> dict[str, str]:
        """Return the variables of the manifest. The downward API gives a name to everything."""
        return {one["name"]: one.get("value", "node1") for one in self.container.get("env", ())}

    def bundle(self, place: Path, command: Sequence[str], env: Mapping[str, str]) -> Bundle:
        """Write a bundle at `place` that runs `command`."""
        root = self.image or place / "root"
        for name in ("proc", "dev", "sys", "run", "tmp", "var/run", "etc", NODE[1:]):
            (root / name).mkdir(parents=True, exist_ok=True)
        made = bundles.bundle(place, root, command, [f"{k}={v}" for k, v in env.items()])
        config = made.config()
        if self.image is None:
            config["mounts"] += self._programs(root)
            config["mounts"].append(_bind(self.node, NODE, is_read_only=True))
        config["mounts"] += self._volumes(place)
        config["root"]["readonly"] = bool(self.security.get("readOnlyRootFilesystem"))
        self._restrict(config)
        made.write(config)
        return made

    def _restrict(self, config: dict[str, Any]) -> None:
        is_privileged = bool(self.security.get("privileged"))
        process, linux = config["process"], config["linux"]
        process["capabilities"] = dict.fromkeys(
            ("bounding", "effective", "permitted"), self.capabilities
        )
        process["noNewPrivileges"] = self.security.get("allowPrivilegeEscalation") is False
        linux["namespaces"] = [{"type": one} for one in ("ipc", "uts", "mount")]
        if is_privileged:
            linux["maskedPaths"] = linux["readonlyPaths"] = []
            linux["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
        else:
            assert self.security["seccompProfile"] == {"type": "RuntimeDefault"}
            linux["seccomp"] = default_seccomp(self.capabilities)

    @staticmethod
    def _programs(root: Path) -> list[dict[str, Any]]:
        """Return mounts of the programs of this machine, in place of the image's."""
        for name in _MERGED:
            if (Path("/") / name).is_symlink():
                (root / name).symlink_to(os.readlink(Path("/") / name))
        paths = {Path("/usr"), CHECKOUT, Path(sys.base_prefix), Path(sys.prefix)}
        wanted = [p for p in sorted(paths) if not any(q in paths for q in p.parents)]
        return [_bind(path, str(path), is_read_only=True) for path in wanted]

    def _volumes(self, place: Path) -> list[dict[str, Any]]:
        sources = {one["name"]: self._source(one, place) for one in self.pod["volumes"]}
        mounts = [
            _bind(
                sources[one["name"]] / one.get("subPath", ""),
                one["mountPath"],
                is_read_only=one.get("readOnly", False),
                propagation="rslave" if "mountPropagation" in one else "rprivate",
            )
            for one in self.container["volumeMounts"]
        ]
        return sorted(mounts, key=lambda one: len(Path(one["destination"]).parts))  # as containerd

    def _source(self, volume: Mapping[str, Any], place: Path) -> Path:
        """Return the directory of a volume; the kubelet creates what a type ...OrCreate names."""
        if "configMap" in volume:
            assert self.configs is not None
            return self.configs
        if "emptyDir" in volume:
            made = place / "volumes" / str(volume["name"])
            for one in self.container["volumeMounts"]:
                if one["name"] == volume["name"]:
                    (made / one.get("subPath", "")).mkdir(parents=True, exist_ok=True)
            return made
        host = volume["hostPath"]
        if host["type"] == "CharDevice":
            return Path(host["path"])
        path = self.node / str(host["path"]).lstrip("/")
        if host["type"] == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        assert path.is_dir(), path
        return path


def _bind(
    source: Path, destination: str, *, is_read_only: bool, propagation: str = "rprivate"
) -> dict[str, Any]:
    options = ["rbind", propagation, "ro" if is_read_only else "rw"]
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": options,
    }
