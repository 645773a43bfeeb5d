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
from uuid import uuid4

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
PODMAN = ("podman", "run", "--detach", "--network=none", "--pids-limit=0", "--cap-add=MKNOD")
SLEEP = ("sleep", "1000")
NEXT = "99.0.0"
# Adds rules to a container's device programs; systemd does not know them.
LEGACY = f"""
import sys
sys.path.insert(0, "/usr/lib/gpuhook/{__version__}")
from gpuhook.apply.live.cgroup.cgroup_v2_devices import DevicePrograms
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.kernel.cgroup import DeviceCgroup
with open(f"/proc/{{sys.argv[1]}}/cgroup", "rb") as file:
    place = DeviceCgroup.parse(file.read())
DevicePrograms(place, None).change([Rule.of_line(line) for line in sys.argv[2:]], [])
"""
FILES = """
find / -xdev -name '*gpuhook*' ! -path '/srv/*' ! -path '/var/lib/dpkg/*' \\
    ! -path '/etc/systemd/system/gpuhook-.service.d'
find /run -name '*gpuhook*'
"""


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
    node.run("systemctl", "reset-failed")  # Docker's unit limits the number of its starts
    node.check("gpuhook", "configure", *words, *restart)
    try:
        yield
    finally:
        node.check("gpuhook", "configure", "undo", words[0], *restart)


@dataclass(frozen=True)
class Running:
    """A running container of Docker, podman or `ctr`."""

    node: BootedNode
    engine: str
    id: str

    @property
    def pid(self) -> str:
        """Return its first process."""
        return self.node.check(self.engine, "inspect", "--format={{.State.Pid}}", self.id).strip()

    def view(self) -> View:
        """Return what a process that starts in it sees and can open."""
        other = self.node.gpus.node.gpus[OTHER].minor
        words = questions(tries=[f"195:{other}"])
        if self.engine == "ctr":
            command = ["ctr", "tasks", "exec", f"--exec-id={uuid4().hex}", self.id]
        else:
            command = [self.engine, "exec", self.id]
        return view(self.node.check(*command, "/probe", *words))

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
    try:
        yield Running(node, engine, identity)
    finally:
        at_once = ["--time=0"] if engine == "podman" else []
        node.check(engine, "rm", "--force", *at_once, identity)


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
    "file",
    ["/lib/modules/$(uname -r)/modules.dep", "/usr/bin/nvidia-smi", "/etc/gpuhook/config.yaml"],
)
def test_changed_file(booted: BootedNode, file: str) -> None:
    """The path unit starts a refresh when a driver is installed or a setting changes."""
    before = runs(booted)
    booted.check("sh", "-c", f"touch {file}")
    eventually(lambda: runs(booted) != before, f"a refresh after a change of {file}")
    eventually(lambda: booted.show(REFRESH, "ActiveState") == "inactive", "the end of the refresh")
    assert booted.show(REFRESH, "Result") == "success"


def test_commands_of_the_page(booted: BootedNode) -> None:
    """The other commands of docs/how-to/services.md run."""
    booted.check("systemctl", "disable", "--now", REFRESH, PATH)
    assert [booted.show(unit, "ActiveState") for unit in (REFRESH, PATH)] == ["inactive"] * 2
    booted.check("systemctl", "enable", "--now", REFRESH, PATH)
    assert booted.show(PATH, "ActiveState") == "active"
    booted.check("systemctl", "start", "gpuhook-refresh")
    assert "it matches this host" in booted.check("journalctl", "-u", "gpuhook-refresh")
    booted.check("rm", "/dev/nvidiactl")
    booted.check("systemctl", "restart", "gpuhook-devices")
    booted.check("stat", "/dev/nvidiactl")
    # Services of systemd 252 see the machine's boot id here, and this command the node's.
    assert SPEC in booted.check("gpuhook", "refresh", "--dry-run")


def test_timer(booted: BootedNode) -> None:
    """The timer can be enabled, and starts the refresh."""
    booted.check("systemctl", "enable", "--now", TIMER)
    timers = json.loads(booted.check("systemctl", "list-timers", "--output=json"))
    assert {one["activates"] for one in timers if one["unit"] == TIMER} == {REFRESH}
    booted.check("systemctl", "disable", "--now", TIMER)


def test_links_of_devices(booted: BootedNode) -> None:
    """runc 1.1.3 to 1.1.6 give systemd no rule for a device without a link: doctor fixes that."""
    result = check_result(booted, "devices.links")
    number = tuple(map(int, booted.version("runc", "--version").split(".")))
    if not (1, 1, 3) <= number < (1, 1, 7):
        assert result["status"] == "not-applicable"
        return
    assert result["status"] == "warning"
    booted.check("sh", "-c", result["command"])
    assert check_result(booted, "devices.links")["status"] == "ok"


def check_result(node: BootedNode, name: str) -> dict[str, str]:
    """Return the only result of a check of doctor."""
    command = ("gpuhook", "doctor", f"--checks={name}", "--output=json")
    (result,) = json.loads(node.run(*command).stdout)["results"]
    return dict(result)


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
        assert "nothing to do" in booted.check("gpuhook", "repair", one.id)
    covers("systemd", systemd(booted), f"daemon-reload: {integration}")


def test_lost_gpu(booted: BootedNode, image: str, covers: Callable[..., None]) -> None:
    """A daemon-reload takes the GPU of NVIDIA's legacy hook; `repair` restores it for good."""
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    library = booted.check("readlink", "-f", library).strip()
    words = (f"--env={ENV}", f"--volume={library}:{library}:ro")
    with running(booted, "docker", *words) as one:
        legacy_hook(booted, one.pid)
        assert one.has_gpu()
        booted.check("gpuhook", "inspect", "--exit-code", one.id)
        booted.check("systemctl", "daemon-reload")
        assert not one.has_gpu()
        seen = booted.run("gpuhook", "inspect", "--exit-code", one.id)
        assert seen.rc == 1, seen
        assert "GH1744" in seen.stdout + seen.stderr
        result = check_result(booted, "containers.access")
        assert (result["status"], result["subject"]) == ("failed", one.id)
        booted.check("sh", "-c", result["command"])
        assert one.has_gpu()
        booted.check("systemctl", "daemon-reload")
        assert one.has_gpu()
    covers("systemd", systemd(booted), "daemon-reload: NVIDIA's legacy hook, `gpuhook repair`")


def legacy_hook(node: BootedNode, pid: str) -> None:
    """Give a container the GPU as libnvidia-container does: nodes, and rules in its programs."""
    rules = []
    for path in (node.device(GPU), "/dev/nvidiactl", "/dev/nvidia-uvm"):
        numbers = node.check("stat", "--format=%Hr %Lr", path).split()
        make = ("sh", "-c", 'umask 0; exec mknod "$@"', "sh", path, "c", *numbers)
        node.check("nsenter", f"--target={pid}", "--mount", *make)
        rules.append(f"c {':'.join(numbers)} rw")
    node.check("python3", "-c", LEGACY, pid, *rules)


def test_containerd(booted: BootedNode, covers: Callable[..., None]) -> None:
    """A container keeps running and keeps its GPU over restarts and a daemon-reload."""
    root = booted.image_root("debian", "rootfs")
    before = booted.check("sh", "-c", "cat /etc/containerd/config.toml")
    pids = [booted.show("containerd.service", "MainPID")]
    with configured(booted, "containerd"):
        pids.append(booted.show("containerd.service", "MainPID"))
        assert "gpuhook-runtime" in booted.check("containerd", "config", "dump")
        booted.path("/srv/config.json").write_text(config(booted, root), encoding="utf-8")
        words = ["--detach", "--runc-binary=/usr/bin/gpuhook-runtime", "--runc-systemd-cgroup"]
        words.append("--cgroup=system.slice:ctr:one")
        booted.check("ctr", "run", *words, "--config=/srv/config.json", "one")
        one = Running(booted, "ctr", "one")
        assert one.has_gpu()
        booted.check("systemctl", "daemon-reload")
        assert one.has_gpu()
    pids.append(booted.show("containerd.service", "MainPID"))
    assert len(set(pids)) == len(pids)
    assert booted.check("sh", "-c", "cat /etc/containerd/config.toml") == before
    assert one.has_gpu()
    assert "ctr-one.scope" in booted.check("systemctl", "list-units", "--type=scope")
    booted.check("ctr", "tasks", "kill", "--signal=KILL", "one")
    eventually(
        lambda: "STOPPED" in booted.check("ctr", "tasks", "list"), "the end of the container"
    )
    booted.check("ctr", "containers", "delete", "one")
    covers("systemd", systemd(booted), "`configure containerd --restart`, undo")
    covers("systemd", systemd(booted), "daemon-reload: ctr, gpuhook-runtime")


def config(node: BootedNode, root: str) -> str:
    """Return a config.json without a CPU weight, which `ctr` adds and the node's cgroups lack."""
    made = json.loads(
        node.check("sh", "-c", "cd /tmp && runc spec && cat config.json && rm config.json")
    )
    made["root"] = {"path": root}
    made["process"] |= {"terminal": False, "args": SLEEP, "env": ["PATH=/usr/bin", ENV]}
    for kind in ("bounding", "effective", "permitted"):
        made["process"]["capabilities"][kind].append("CAP_MKNOD")
    made["linux"]["cgroupsPath"] = "system.slice:ctr:one"
    return json.dumps(made)


def test_docker_with_live_restore(
    booted: BootedNode, image: str, covers: Callable[..., None]
) -> None:
    """Containers survive the restarts of `configure docker --restart` and its undo."""
    text = '{\n  "live-restore": true\n}\n'
    file = booted.path("/etc/docker/daemon.json")
    file.write_text(text, encoding="utf-8")
    booted.check("systemctl", "restart", "docker")
    with running(booted, "docker") as one:
        pid = one.pid
        with configured(booted, "docker"):
            assert "live-restore" in file.read_text(encoding="utf-8")
            assert one.pid == pid
            with running(booted, "docker", "--runtime=nvidia", f"--env={ENV}") as other:
                assert other.has_gpu()
        assert one.pid == pid
        assert booted.check("docker", "exec", one.id, "echo", "alive") == "alive\n"
    assert file.read_text(encoding="utf-8") == text
    file.unlink()
    booted.run("systemctl", "reset-failed")
    booted.check("systemctl", "restart", "docker")
    covers("systemd", systemd(booted), "`configure docker --restart` with live-restore, undo")


def test_device_plugin(booted: BootedNode, covers: Callable[..., None]) -> None:
    """The plugin runs as a service of the host, waits for a kubelet, and stops at once."""
    unit = "gpuhook-device-plugin.service"
    booted.check("systemd-run", f"--unit={unit}", "/usr/bin/gpuhook-device-plugin")

    def log() -> str:
        return booted.check("journalctl", f"--unit={unit}", "--output=cat")

    eventually(lambda: "offered resource=nvidia.com/gpu" in log(), "the resources of the plugin")
    assert 'event="waiting for the kubelet"' in log()
    booted.check("systemctl", "stop", unit)
    assert booted.show(unit, "Result") == "success"
    covers("systemd", systemd(booted), "gpuhook-device-plugin as a service")


def test_upgrade(booted: BootedNode, image: str, covers: Callable[..., None]) -> None:
    """A container keeps its GPU over an upgrade and a downgrade; the units remain enabled."""
    words = ("--runtime=nvidia", f"--env={ENV}")
    with configured(booted, "docker"), running(booted, "docker", *words) as one:
        for version in (NEXT, ""):
            done = booted.install(version)
            assert done.rc == 0, done
            assert booted.check("gpuhook", "--version").split()[-1] == (version or __version__)
            assert one.has_gpu()
            with running(booted, "docker", *words) as other:
                assert other.has_gpu()
            assert booted.show(PATH, "ActiveState") == "active"
            eventually(lambda: booted.show(REFRESH, "ActiveState") == "inactive", "the refresh")
            assert booted.show(REFRESH, "Result") == "success"
            assert booted.show(REFRESH, "NeedDaemonReload") == "no"
    assert booted.state() == "running", booted.check("systemctl", "--failed")
    covers("systemd", systemd(booted), "upgrade and downgrade with a running container")


def test_purge(booted: BootedNode, covers: Callable[..., None]) -> None:
    """Removed packages leave no unit, a purge leaves no file.

    An installation starts the units, unless they are masked.
    """
    names = ("gpuhook-device-plugin", "gpuhook", "gpuhook-runtime")
    booted.check("dpkg", "--remove", *names)
    assert "0 unit files" in booted.run("systemctl", "list-unit-files", "gpuhook*").stdout
    assert booted.state() == "running", booted.check("systemctl", "--failed")
    booted.check("dpkg", "--purge", *names)
    assert booted.check("sh", "-c", FILES) == ""
    assert booted.run("test", "-e", SPEC).rc == 1
    booted.check("systemctl", "mask", REFRESH, PATH)
    done = booted.install()
    assert done.rc == 0, done
    assert {booted.show(unit, "ActiveState") for unit in (REFRESH, PATH)} == {"inactive"}
    assert booted.run("test", "-e", SPEC).rc == 1
    booted.check("systemctl", "unmask", REFRESH, PATH)
    booted.check("dpkg", "--purge", *names)
    done = booted.install()
    assert done.rc == 0, done
    eventually(lambda: booted.run("test", "-e", SPEC).rc == 0, "the spec of the service")
    assert booted.show(PATH, "ActiveState") == "active"
    covers("systemd", systemd(booted), "remove, purge, installation")
