# SPDX-License-Identifier: Apache-2.0
"""The time of each command, on a full node: 112 MIG instances, 500 running containers.

The containers are real containers of runc, each with a replica of an instance from gpuhook; there
are 1,000 CDI specs of other vendors. The commands are installed. A figure is the processor time of
a command and its children, which other programs disturb less than the time on the clock: the least
of a few calls, including the start of the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import process_usage
from tests.bench.figure import Figure
from tests.bench.nodes import partitioned
from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks, installation
from tests.contract.runtimes import run_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


CONTAINERS, FOREIGN_SPECS = 500, 1000
MOST = 1000.0  # milliseconds
# Commands that look into each container show their progress, and have so many more for each one.
EACH = {"compare --all": 20.0, "doctor --state": 10.0, "support-bundle": 10.0, "repair --all": 6.0}
_CALLS = 3


@dataclass(frozen=True)
class Crowd:
    """The node, and its running containers."""

    installation: Installation
    state_root: Path
    bundles: Path
    ids: tuple[str, ...]

    @property
    def one(self) -> str:
        """Return the id of one of the containers."""
        return self.ids[len(self.ids) // 2]

    @property
    def manifest(self) -> str:
        """Write a pod's manifest, and return its path."""
        path = self.installation.place / "pod.json"
        container = {
            "name": "main",
            "image": "cuda",
            "resources": {"limits": {"nvidia.com/gpu": 2}},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}}
        path.write_text(json.dumps({**pod, "spec": {"containers": [container]}}), "utf-8")
        return str(path)

    @property
    def claims(self) -> str:
        """Write as many claims as containers, a pod for each, and return the path of the file."""
        device = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        objects: list[dict[str, object]] = []
        for name in self.ids:
            head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
            spec: dict[str, object] = {"devices": {"requests": [device]}}
            objects.append({**head, "metadata": {"name": name}, "spec": spec})
            used = {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}
            main = {"name": "main", "image": "cuda", "resources": {"claims": [{"name": "gpu"}]}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
            objects.append({**pod, "spec": {**used, "containers": [main]}})
        path = self.installation.place / "claims.yaml"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "utf-8")
        return str(path)

    def commands(self) -> Iterator[tuple[str, ...]]:
        """Yield the command lines to measure."""
        root = f"--state-root={self.state_root}"
        node = self.installation.node.options
        library = f"--nvml-library={self.installation.node.nvml_library}"
        yield ("--version",)
        yield ("--help",)
        yield ("refresh",)  # the node is unchanged
        yield "inventory", *node
        yield "generate-cdi", *node
        yield "cdi", "list"
        yield "cdi", "validate", str(self.installation.spec)
        yield "config", "show"
        yield "labels", *node
        yield "health", "show"
        yield "completion", "bash"
        yield "ps", library
        yield "ps", "-o", "json", library
        yield "ps", "--isolation", library
        yield "map", library
        yield "map", "--svg", "-", library
        yield "map", "--html", "-", library
        yield "inspect", self.one, root, library
        yield "limits", "show", library
        yield "repair", "--all", "--dry-run", root, library
        yield "explain", self.one, root
        yield "explain", str(self.bundles / self.one)
        yield "explain", self.manifest, "--inventory", "h100x8"
        yield "explain", "GH1102"
        yield "dra", "lint", self.claims
        yield "compare", self.one, root
        yield "compare", "--all", root
        yield "doctor", root, *node
        yield "doctor", "--list"
        yield "doctor", "--root", self.installation.node.host_root
        bundle = str(self.installation.place / "bundle.tar.gz")
        yield "support-bundle", "--file", bundle, root, *node
        yield "doctor", "--from", bundle


def figures(place: Path) -> Iterator[Figure]:
    """Measure all commands, with files below `place`."""
    with crowd(place) as made:
        for words in made.commands():
            took = [_milliseconds(made.installation, words) for _ in range(_CALLS)]
            line = " ".join(words)
            most = MOST + CONTAINERS * next(
                (ms for of, ms in EACH.items() if line.startswith(of)), 0
            )
            yield Figure(f"gpuhook {_shown(words, made)}", min(took), "ms", most)


def _shown(words: Sequence[str], made: Crowd) -> str:
    """Return a command line without the options that only this node needs."""
    hidden = ("--state-root=", "--nvml-library=", "--driver-root=", "--dev-root=", "--host-root=")
    names = {made.one: "CONTAINER", str(made.bundles / made.one): "BUNDLE"}
    shown = [names.get(word, word) for word in words if not word.startswith(hidden)]
    return " ".join(os.path.basename(word) if word.startswith("/") else word for word in shown)


def _milliseconds(installation: Installation, words: Sequence[str]) -> float:
    begun = process_usage.of_children()
    done = run_command(
        [installation.bindir / "gpuhook", *words], {**os.environ, **installation.env}
    )
    took = process_usage.of_children() - begun
    if done.rc not in (0, 1) or "GH1491" in done.stderr:  # 1: the command reports a finding
        raise RuntimeError(f"gpuhook {' '.join(words)}: {done.stderr}")
    return took


@contextmanager
def crowd(place: Path, containers: int = CONTAINERS) -> Iterator[Crowd]:
    """Yield a full node with so many running containers; they end with the context."""
    made = installation(place, partitioned())
    _add_foreign_specs(made)
    names = [one.uuid for gpu in made.node.node.gpus for one in gpu.instances]
    state_root, bundles = place / "runtime", place / "bundles"
    root = roots.copy("musl", place / "root")
    ids = tuple(f"crowd-{number:03}" for number in range(containers))
    try:
        for number, identity in enumerate(ids):
            replica = f"{names[number % len(names)]}::{number // len(names)}"
            _start(made, state_root, bundles / identity, root, identity, replica)
        yield Crowd(made, state_root, bundles, ids)
    finally:
        for identity in ids:
            _end(state_root, identity)


def _add_foreign_specs(made: Installation, count: int = FOREIGN_SPECS) -> None:
    """Write specs of other vendors, half of them into a second directory."""
    directories = made.specs, made.place / "cdi-static"
    made.settings["cdi"] = {"specDirs": [str(one) for one in directories]}
    directories[1].mkdir()
    made.configure()
    for number in range(count):
        edits = {"env": [f"ACME_{number}=1"], "deviceNodes": [{"path": "/dev/null"}]}
        devices = [{"name": str(n), "containerEdits": edits} for n in range(8)]
        spec = {"cdiVersion": "0.6.0", "kind": f"acme{number}.com/card", "devices": devices}
        path = directories[number % 2] / f"acme{number}.{'json' if number % 3 else 'yaml'}"
        path.write_text(json.dumps(spec, indent=2), encoding="utf-8")


def _start(
    made: Installation, state_root: Path, path: Path, root: Path, identity: str, replica: str
) -> None:
    annotations = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "main",
        "io.kubernetes.cri.sandbox-name": f"train-{identity}",
        "io.kubernetes.cri.sandbox-namespace": "ml",
    }
    bundle(path, root, ["sleep", "3600"], asks(replica), annotations)
    runtime = [made.runtime, "--root", str(state_root)]
    env = {**os.environ, **made.on("runc")}
    null = subprocess.DEVNULL
    run = ["run", "--detach", "--bundle", str(path), identity]
    subprocess.run([*runtime, *run], check=True, env=env, stdin=null, stdout=null)


def _end(state_root: Path, identity: str) -> None:
    runc = [shutil.which("runc") or "runc", "--root", str(state_root)]
    subprocess.run([*runc, "delete", "--force", identity], check=False, capture_output=True)
