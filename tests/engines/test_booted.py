# SPDX-License-Identifier: Apache-2.0
"""gpuhook's units and packages on a booted systemd, and containers over a daemon-reload.

Containers are in scopes of systemd on cgroup v2. The node has no controller `pids`: podman gets no
limit of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import yaml

from gpuhook import __version__
from tests.contract.views import View, questions, view
from tests.engines.booted_node import BootedNode
from tests.waiting import eventually

IMAGE = "probe:1"
SPEC = "/var/run/cdi/nvidia.yaml"
REFRESH, PATH, TIMER = (f"gpuhook-refresh.{kind}" for kind in ("service", "path", "timer"))
GPU, OTHER = 2, 0  # the GPU of the containers, and one that they do not request
ENV = f"NVIDIA_VISIBLE_DEVICES={GPU}"
DEVICE = f"--device=nvidia.com/gpu={GPU}"
DOCKER = ("docker", "run", "--detach", "--network=none")
PODMAN = ("podman", "run", "--detach", "--network=none", "--pids-limit=0")
SLEEP = ("sleep", "1000")
NEXT = "99.0.0"


@dataclass(frozen=True)
class Integration:
    """How a container gets its GPU: the engine, its words before the image, and the set-up."""

    engine: str
    words: tuple[str, ...]
    configure: tuple[str, ...] = ()
    attaches: bool = False


INTEGRATIONS = {
    "docker-runtime": Integration("docker", ("--runtime=nvidia", f"--env={ENV}"), ("docker",)),
    "docker-attach": Integration("docker", (), attaches=True),
    "podman-cdi-crun": Integration("podman", ("--runtime=crun", DEVICE)),
    "podman-cdi-runc": Integration("podman", ("--runtime=runc", DEVICE)),
    "podman-hook-crun": Integration(
        "podman", ("--runtime=crun", f"--env={ENV}"), ("podman", "--route", "hook")
    ),
    "podman-hook-runc": Integration(
        "podman", ("--runtime=runc", f"--env={ENV}"), ("podman", "--route", "hook")
    ),
}


@pytest.fixture(scope="module")
def image(booted: BootedNode) -> str:
    """Import the image of a Debian with the probe into Docker and podman."""
    root = booted.image_root("debian", "image")
    for engine in ("docker", "podman"):
        booted.check("sh", "-c", f"tar -C {root} -c . | {engine} import - {IMAGE}")
    return IMAGE


@contextmanager
def configured(node: BootedNode, *words: str) -> Iterator[None]:
    """Configure an engine and restart it, and undo both."""
    if not words:
        yield
        return
    restart = [] if words[0] == "podman" else ["--restart"]
    node.check("gpuhook", "configure", *words, *restart)
    yield
    node.check("gpuhook", "configure", "undo", words[0], *restart)


@dataclass(frozen=True)
class Running:
    """A running container of Docker or podman."""

    node: BootedNode
    engine: str
    id: str

    @property
    def pid(self) -> str:
        """Return its first process."""
        return self.node.check(
            self.engine, "inspect", "--format={{.State.Pid}}", self.id
        ).strip()

    def view(self) -> View:
        """Return what a process that starts in it sees and can open."""
        other = self.node.gpus.node.gpus[OTHER].minor
        words = questions(tries=[f"195:{other}"])
        return view(self.node.check(self.engine, "exec", self.id, "/probe", *words))

    def has_gpu(self) -> bool:
        """Return whether it can open its GPU, which must have its node; never another GPU."""
        seen = self.view()
        assert seen.tries == {f"195:{self.node.gpus.node.gpus[OTHER].minor}": "EPERM"}
        gpus = [path for path in seen.gpus() if path[11:].isdecimal()]
        assert gpus == [self.node.device(GPU)]
        answers = {seen.gpus()[path].allowed for path in (*gpus, "/dev/nvidiactl")}
        assert len(answers) == 1
        return answers.pop()


@contextmanager
def running(node: BootedNode, engine: str, *words: str) -> Iterator[Running]:
    """Run a container, and remove it in the end."""
    run = DOCKER if engine == "docker" else PODMAN
    identity = node.check(*run, *words, IMAGE, *SLEEP).strip()
    yield Running(node, engine, identity)
    node.check(engine, "rm", "--force", identity)


def spec_names(node: BootedNode) -> set[str]:
    """Return the names of the devices of the node's CDI spec."""
    document = yaml.safe_load(node.check("cat", SPEC))
    return {str(device["name"]) for device in document["devices"]}


def runs(node: BootedNode) -> str:
    """Return the number of the last run of gpuhook-refresh."""
    return node.show(REFRESH, "InvocationID")


def systemd(node: BootedNode) -> str:
    """Return the version of systemd."""
    return node.check("systemctl", "--version").split()[1]


def test_boot(booted: BootedNode, covers: Callable[..., None]) -> None:
    """The units create the device nodes and generate the spec before engines start."""
    assert booted.state() == "running", booted.check("systemctl", "--failed")
    assert booted.show(REFRESH, "Result") == "success"
    assert booted.show("gpuhook-devices.service", "ActiveState") == "active"
    assert booted.check("stat", "--format=%t:%T", "/dev/nvidiactl").strip() == "c3:ff"
    gpus = booted.gpus.node.gpus
    instances = {one.uuid for gpu in gpus for one in gpu.instances}
    assert instances | {gpus[GPU].uuid, "all"} <= spec_names(booted)
    for engine in ("containerd", "docker"):
        assert REFRESH in booted.show(f"{engine}.service", "After").split()
        assert booted.show(f"{engine}.service", "ActiveState") == "active"
    states = {unit: booted.show(unit, "UnitFileState") for unit in (REFRESH, PATH, TIMER)}
    assert states == {REFRESH: "enabled", PATH: "enabled", TIMER: "disabled"}
    covers("systemd", systemd(booted), "units at boot")


def test_units_have_no_warnings(booted: BootedNode) -> None:
    """This release's systemd and udev read the installed units and rules without a warning."""
    units = booted.check("sh", "-c", "ls /usr/lib/systemd/system/gpuhook-*").split()
    done = booted.run("systemd-analyze", "verify", "--man=no", *units)
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")
    if int(systemd(booted)) >= 254:
        booted.check("udevadm", "verify", "/usr/lib/udev/rules.d/71-gpuhook.rules")


def test_new_mig_instance(booted: BootedNode, covers: Callable[..., None]) -> None:
    """The path unit starts a refresh when the driver's tools create the nodes of an instance."""
    facts = booted.gpus.node
    first, *others = facts.gpus
    fewer = replace(facts, gpus=(replace(first, instances=first.instances[:-1]), *others))
    new = first.instances[-1]
    nodes = [
        f"/dev/nvidia-caps/nvidia-cap{minor}"
        for minor in (new.gpu_instance_minor, new.compute_instance_minor)
    ]
    booted.become(fewer)
    booted.check("rm", *nodes)
    booted.check("systemctl", "start", REFRESH)
    assert new.uuid not in spec_names(booted)
    booted.become(facts)
    booted.check("gpuhook", "system", "create-device-nodes")
    eventually(lambda: new.uuid in spec_names(booted), "the spec of the new instance")
    covers("systemd", systemd(booted), "path unit: MIG instance")


@pytest.mark.parametrize(
    "file", ["/lib/modules/$(uname -r)/modules.dep", "/usr/bin/nvidia-smi", "/etc/gpuhook/config.yaml"]
)
def test_changed_file(booted: BootedNode, file: str) -> None:
    """The path unit starts a refresh after an installation of the driver or a change of settings."""
    before = runs(booted)
    booted.check("sh", "-c", f"touch {file}")
    eventually(lambda: runs(booted) != before, f"a refresh after a change of {file}")
    eventually(lambda: booted.show(REFRESH, "ActiveState") == "inactive", "the end of the refresh")
    assert booted.show(REFRESH, "Result") == "success"


def test_timer(booted: BootedNode) -> None:
    """The timer can be enabled, and starts the refresh."""
    booted.check("systemctl", "enable", "--now", TIMER)
    timers = json.loads(booted.check("systemctl", "list-timers", "--output=json"))
    assert {one["activates"] for one in timers if one["unit"] == TIMER} == {REFRESH}
    booted.check("systemctl", "disable", "--now", TIMER)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_daemon_reload(
    booted: BootedNode, image: str, integration: str, covers: Callable[..., None]
) -> None:
    """A container in a systemd scope has its GPU after a daemon-reload, and no other one."""
    how = INTEGRATIONS[integration]
    with configured(booted, *how.configure), running(booted, how.engine, *how.words) as one:
        if how.attaches:
            booted.check("gpuhook", "attach", one.id, "--device", str(GPU))
        assert one.has_gpu()
        booted.check("systemctl", "daemon-reload")
        assert one.has_gpu()
        booted.check("gpuhook", "inspect", "--exit-code", one.id)
        assert json.loads(booted.check("gpuhook", "repair", one.id, "-o", "json"))
    covers("systemd", systemd(booted), f"daemon-reload: {integration}")
