# SPDX-License-Identifier: Apache-2.0
"""A containerd that is called over the CRI's socket, as by a kubelet: pods and containers.

The pods use the host's network, so that no CNI plugin is needed. Their image, also that of the
sandbox, has the probe and a shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract import images, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.engines import run_daemon
from tests.contract.installation import Installation
from tests.contract.runtimes import SECONDS, Result, runtime_environment
from tests.contract.views import View
from tests.waiting import eventually

IMAGE = "gpuhook.test/probe:1"
_HOST_NETWORK = {"namespace_options": {"network": "NODE"}}
_EXITED = 2


def _interface() -> tuple[Any, Any]:
    """Return the messages and the services of cri.proto."""
    before = Path.cwd()
    os.chdir(CHECKOUT)  # protoc looks for the file from here
    try:
        return grpc.protos_and_services("tests/contract/cri.proto")
    finally:
        os.chdir(before)


@dataclass(frozen=True)
class Pod:
    """A running pod sandbox."""

    id: str
    config: Any


@dataclass(frozen=True)
class Container:
    """A container that was started."""

    id: str
    log: Path


@dataclass(frozen=True)
class Cri:
    """A containerd with CRI; its state is in `place`, below the daemon's root directory `root`."""

    place: Path
    messages: Any
    runtime: Any
    root: Path = Path("/")

    @contextmanager
    def pod(
        self,
        name: str,
        handler: str = "nvidia",
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
    ) -> Iterator[Pod]:
        """Yield a pod whose runtimeClass names `handler`; then remove it with its containers.

        `annotations` are the pod's own, which its user writes.
        """
        pod = self.start_pod(name, handler, namespace, annotations)
        try:
            yield pod
        finally:
            self.remove_pod(pod)

    def start_pod(
        self,
        name: str,
        handler: str = "nvidia",
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
    ) -> Pod:
        """Start a pod; see pod()."""
        uid = uuid4().hex
        config = self.messages.PodSandboxConfig(
            metadata={"name": name, "uid": uid, "namespace": namespace},
            log_directory=str(self.place / "logs" / f"{namespace}_{name}_{uid}"),
            labels={
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": namespace,
            },
            annotations=annotations or {},
            linux={"cgroup_parent": "/gpuhook-tests", "security_context": _HOST_NETWORK},
        )
        self._here(config.log_directory).mkdir(parents=True, exist_ok=True)
        request = self.messages.RunPodSandboxRequest(config=config, runtime_handler=handler)
        return Pod(self.runtime.RunPodSandbox(request, timeout=SECONDS).pod_sandbox_id, config)

    def remove_pod(self, pod: Pod) -> None:
        """Stop a pod, and remove it with its containers."""
        sandbox = self.messages.PodSandboxRequest(pod_sandbox_id=pod.id)
        self.runtime.StopPodSandbox(sandbox, timeout=SECONDS)
        self.runtime.RemovePodSandbox(sandbox, timeout=SECONDS)

    def container(
        self,
        pod: Pod,
        command: list[str],
        given: Allocation,
        env: Mapping[str, str] | None = None,
        name: str = "main",
        attempt: int = 0,
    ) -> Container:
        """Create and start a container with `given`, an allocation as the kubelet passes it.

        Variables of the pod override those of the allocation. `attempt` counts the restarts.
        """
        envs = {**given.envs, **(env or {})}
        config = self.messages.ContainerConfig(
            metadata={"name": name, "attempt": attempt},
            image={"image": IMAGE},
            command=command,
            envs=[{"key": key, "value": value} for key, value in envs.items()],
            mounts=[
                {
                    "container_path": mount.container_path,
                    "host_path": mount.host_path,
                    "readonly": mount.read_only,
                }
                for mount in given.mounts
            ],
            devices=[
                {
                    "container_path": device.container_path,
                    "host_path": device.host_path,
                    "permissions": device.permissions,
                }
                for device in given.devices
            ],
            labels={
                **dict(pod.config.labels),
                "io.kubernetes.container.name": name,
            },
            annotations=given.annotations,
            log_path=f"{name}-{attempt}.log",
            linux={"security_context": _HOST_NETWORK},
            CDI_devices=[{"name": device} for device in given.cdi_devices],
        )
        request = self.messages.CreateContainerRequest(
            pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config
        )
        made = self.runtime.CreateContainer(request, timeout=SECONDS)
        self.runtime.StartContainer(made, timeout=SECONDS)
        log = self._here(pod.config.log_directory) / config.log_path
        return Container(made.container_id, log)

    def _here(self, path: str) -> Path:
        """Return the path here of a path of the daemon."""
        return self.root / path.lstrip("/")

    def exec(self, container: Container, *command: str) -> Result:
        """Run a command in a running container, and return its result."""
        request = self.messages.ExecSyncRequest(container_id=container.id, cmd=command)
        done = self.runtime.ExecSync(request, timeout=SECONDS)
        return Result(done.exit_code, done.stdout.decode(), done.stderr.decode())

    def stop(self, container: Container) -> None:
        """Stop a container, and keep it."""
        request = self.messages.StopContainerRequest(container_id=container.id, timeout=0)
        self.runtime.StopContainer(request, timeout=SECONDS)

    def output(self, container: Container) -> str:
        """Return what the container has written to stdout and stderr so far."""
        wrote = logged(0, container.log)
        return wrote.stdout + wrote.stderr

    def ended(self, container: Container) -> Result:
        """Wait until the container has exited; return its exit code and output."""
        request = self.messages.ContainerRequest(container_id=container.id)

        def status() -> Any:
            return self.runtime.ContainerStatus(request, timeout=SECONDS).status

        eventually(lambda: status().state == _EXITED, f"the end of container {container.id}")
        return logged(status().exit_code, container.log)

    def view(self, pod: Pod, given: Allocation, *asked: str, name: str = "main") -> View:
        """Return the probe's view in a container of the pod; see questions()."""
        return self.ended(self.container(pod, ["/probe", *asked], given, name=name)).view


def logged(code: int, log: Path) -> Result:
    """Return the result of a log: each line is `<time> <stream> <F or P> <text>`; after a P the
    line continues.
    """
    streams = {"stdout": "", "stderr": ""}
    for line in log.read_text(encoding="utf-8").splitlines():
        _, stream, part, text = line.split(" ", 3)
        streams[stream] += text + ("\n" if part == "F" else "")
    return Result(code, streams["stdout"], streams["stderr"])


@contextmanager
def cri_of(installation: Installation, place: Path) -> Iterator[Cri]:
    """Yield a containerd with the handlers `runc`, and `nvidia`, which is gpuhook-runtime."""
    runtime = installation.launcher(place / "gpuhook-runtime")
    with cri(place / "containerd", {"runc": "/usr/sbin/runc", "nvidia": runtime}) as made:
        yield made


@contextmanager
def cri(
    place: Path,
    handlers: Mapping[str, Path | str],
    configure: Callable[[Path], None] | None = None,
    programs: Path | None = None,
    image_kind: str = "musl",
    cgroup: str = "host",
) -> Iterator[Cri]:
    """Yield a containerd with CRI whose runtimes are `handlers`: name -> program.

    `configure` is called with the configuration's path before containerd reads it. `programs` is
    the directory of a containerd that is not in the PATH, `image_kind` one of roots.KINDS,
    `cgroup` that of runtime_environment().
    """
    path = os.environ["PATH"]
    env = {**os.environ, "PATH": f"{programs}:{path}" if programs else path}
    place.mkdir(parents=True, exist_ok=True)
    config = place / "config.toml"
    config.write_text(_config(place, handlers), encoding="utf-8")
    if configure:
        configure(config)
    socket = place / "sock"
    program = shutil.which("containerd", path=env["PATH"])
    assert program is not None
    around = runtime_environment(cgroup=cgroup)
    command = [*around.prefix, program, "--config", str(config)]
    version = ["ctr", "--address", str(socket), "version"]

    def answers() -> bool:
        return subprocess.run(version, capture_output=True, check=False).returncode == 0

    with run_daemon(command, place / "log", answers, env), connected(socket, place) as made:
        _import(place, socket, image_kind)
        yield made


@contextmanager
def connected(socket: Path, place: Path, root: Path = Path("/")) -> Iterator[Cri]:
    """Yield the CRI of a containerd that answers on `socket`; see Cri."""
    messages, services = _interface()
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        yield Cri(place, messages, services.RuntimeServiceStub(channel), root)


def image(place: Path, kind: str = "musl") -> Path:
    """Write the archive of the image below `place`, and return its path; see roots.KINDS."""
    root = roots.copy(kind, place / "root")
    if kind != "musl":
        roots.with_ldconfig(root)
    return images.archive(place, root, IMAGE, ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"])


def _import(place: Path, socket: Path, kind: str) -> None:
    """Import the image into containerd's namespace of the kubelet, unless it is there already."""
    if (place / "image").exists():
        return
    archive = image(place / "image", kind)
    command = ["ctr", "--address", str(socket), "--namespace", "k8s.io"]
    subprocess.run([*command, "images", "import", str(archive)], check=True, capture_output=True)


def _config(place: Path, handlers: Mapping[str, Path | str]) -> str:
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    lines = [
        "version = 2",
        f'root = "{place}/root"',
        f'state = "{place}/state"',
        "[grpc]",
        f'address = "{place}/sock"',
        "[ttrpc]",
        f'address = "{place}/sock.ttrpc"',
        f"[{plugin}]",
        f'sandbox_image = "{IMAGE}"',
        "restrict_oom_score_adj = true",  # this may run without CAP_SYS_RESOURCE
        "disable_apparmor = true",
        "[" + plugin + ".cni]",
        f'bin_dir = "{place}/cni/bin"',
        f'conf_dir = "{place}/cni/net.d"',
        f"[{plugin}.containerd]",
        'snapshotter = "native"',
        f'default_runtime_name = "{next(iter(handlers))}"',
    ]
    for name, program in handlers.items():
        runtime = f"{plugin}.containerd.runtimes.{name}"
        lines += [f"[{runtime}]", 'runtime_type = "io.containerd.runc.v2"']
        lines.append('container_annotations = ["cdi.k8s.io/*"]')  # as in docs/how-to/by-hand.md
        lines += [f"[{runtime}.options]", f'BinaryName = "{program}"']
    return "\n".join(lines) + "\n"
