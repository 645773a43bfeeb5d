# SPDX-License-Identifier: Apache-2.0
"""A containerd with NRI, and `gpuhook nri run` connected to it, on a node with eight GPUs.

The containerds are those of Debian's newer releases: that of this release has no such NRI.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract.cri import Container, Cri, Pod, cri
from tests.contract.debs import unpacked
from tests.contract.installation import PYTHON, STATE, Installation
from tests.contract.runtimes import launcher, runtime_environment
from tests.contract.views import View
from tests.nri import kubelet_checkpoint
from tests.nri.nri_plugin import NriPlugin, nri_plugin

SUITES = ("trixie", "forky")  # containerd 1.7 and 2.1
MODES = {"trixie": "expanded", "forky": "cdi"}
SLEEP = ["/bin/sleep", "600"]
NRI = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{place}/nri/nri.sock"
  plugin_path = "{place}/plugins"
  plugin_config_path = "{place}/conf.d"
{more}
"""


@dataclass(frozen=True)
class NriNode:
    """A node whose containerd has NRI. `place` is the directory of that containerd."""

    node: Installation
    cri: Cri
    place: Path
    cgroup: str = "host"

    @property
    def socket(self) -> Path:
        """Return NRI's socket."""
        return self.place / "nri/nri.sock"

    @contextmanager
    def plugin(self, *options: str) -> Iterator[NriPlugin]:
        """Run the plugin; it is in use when this yields."""
        words = ["--plugin-directory", str(self.place), *options]
        programs = self.place / "programs"
        programs.mkdir(exist_ok=True)
        around = runtime_environment(cgroup=self.cgroup).prefix
        launcher(programs / "gpuhook", [*around, str(self.node.bindir / "gpuhook")])
        with nri_plugin(replace(self.node, bindir=programs), self.socket, *words) as made:
            made.wait_for("ready")
            yield made

    def assign(self, pod: Pod, value: str, name: str = "main", **more: str) -> Allocation:
        """Assign GPUs to a container of a pod, as a kubelet with a device plugin does."""
        envs = {"NVIDIA_VISIBLE_DEVICES": value, **more}
        uid = pod.config.metadata.uid
        kubelet_checkpoint.write(self.place, uid, name, envs)
        return Allocation(envs=envs)

    def view(self, value: str, *asked: str, pod: str = "pod") -> View:
        """Return the probe's view in a container to which a device plugin assigned GPUs."""
        with self.cri.pod(pod, "runc") as made:
            return self.cri.view(made, self.assign(made, value), *asked)

    def sleeping(self, pod: Pod, given: Allocation, name: str = "main") -> Container:
        """Start a container of a pod that sleeps."""
        return self.cri.container(pod, SLEEP, given, name=name)


@contextmanager
def nri_node(
    node8: Installation, place: Path, suite: str, more: str = "", cgroup: str = "host"
) -> Iterator[NriNode]:
    """Yield a node with the containerd of a Debian release; `more` are lines of its NRI table."""
    node = node8.apart(place / "gpuhook", nri={"namespaces": ["chosen"]})
    with state_of(node), _started(node, place, suite, more, cgroup) as made:
        yield made


@contextmanager
def state_of(node: Installation) -> Iterator[None]:
    """Show hooks this installation's state at /run/gpuhook: they have no variable."""
    for directory in (node.state, STATE):
        directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", node.state, STATE], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", STATE], check=True)


@contextmanager
def _started(
    node: Installation, place: Path, suite: str, more: str, cgroup: str
) -> Iterator[NriNode]:
    programs = place / suite
    if not programs.exists():
        unpacked(suite, ["containerd"], programs, "--exclude=./usr/share")
    at = place / "containerd"

    def configure(config: Path) -> None:
        text = config.read_text(encoding="utf-8")
        specs = f'disable_apparmor = true\ncdi_spec_dirs = ["{node.specs}"]'
        text = text.replace("disable_apparmor = true", specs)
        config.write_text(text + NRI.format(place=at, more=more), encoding="utf-8")

    handlers = {"runc": "/usr/sbin/runc", "nvidia": str(node.launcher(place / "gpuhook-runtime"))}
    if cgroup == "v2":
        handlers = {
            name: str(_without_controllers(place / name, program))
            for name, program in handlers.items()
        }
    with cri(at, handlers, configure, programs / "usr/bin", "debian", cgroup) as made:
        yield NriNode(node, made, at, cgroup)


def _without_controllers(path: Path, program: str) -> Path:
    """Write a runtime for a hierarchy v2 whose controllers belong to v1: the CRI limits the CPU."""
    edit = (
        "import json, sys; path = sys.argv[1] + '/config.json'; spec = json.load(open(path));"
        " spec['linux']['resources'] = {'devices': spec['linux']['resources'].get('devices')};"
        " json.dump(spec, open(path, 'w'))"
    )
    path.write_text(
        f"""#!/bin/sh
bundle=
for word do [ "$last" != --bundle ] || bundle=$word; last=$word; done
[ -z "$bundle" ] || {PYTHON} -c "{edit}" "$bundle" || exit 1
exec {program} "$@"
""",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path
