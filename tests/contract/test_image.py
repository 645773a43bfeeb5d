# SPDX-License-Identifier: Apache-2.0
"""The image of the Dockerfile, and its installation on a host without Python and shell.

The host is a directory with runc, the libraries that runc needs, and the driver of a simulated
node. Everything else that runs on it comes from the image.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.charts.rendering import container, rendered
from tests.charts.values import NRI
from tests.contract import engines, roots
from tests.contract.bundles import bundle
from tests.contract.runtimes import Result, run_command
from tests.nri import fake_runtime
from tests.nri.fake_runtime import FakeRuntime
from tests.simulated.node import make_node
from tests.waiting import eventually

NODE = "/sim"  # where the simulated node is on the host
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DAEMON_JSON = '{\n  // kept: false\n  "debug": true\n}\n'.replace("  // kept: false\n", "")
# The file of a node of kubeadm.
CONFIG_TOML = """\
version = 2  # kept
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
"""
PLACES = ("etc/docker", "proc", "sys", "dev", "run", "tmp", "usr/bin", "opt", "root", "etc/cdi")
ENTRYPOINT = """\
#!/bin/sh
until [ -f /run/nvidia/validations/driver-ready ]; do sleep 5; done
set -o allexport
. /run/nvidia/validations/driver-ready
exec nvidia-device-plugin
"""
# As a runtime does that starts the image: it mounts these into each container.
IMAGE_RUNS = (
    'for d in dev proc; do mount --rbind /$d "$0/$d"; done; mount --bind "$1" "$0/host";'
    ' root=$0; shift; exec chroot "$root" "$@"'
)
# As a runtime does with a read-only volume of the host's /, whose mounts remain writable.
POD_RUNS = (
    'for d in dev proc; do mount --rbind /$d "$0/$d"; mount --rbind /$d "$1/$d"; done;'
    ' mkdir -p "$1/run/gpuhook"; mount --bind "$1" "$0/host"; mount -o remount,ro,bind "$0/host";'
    ' mount --bind "$1/run/gpuhook" "$0/host/run/gpuhook";'
    ' for d in dev proc; do mount --rbind "$1/$d" "$0/host/$d"; done;'
    ' root=$0; shift; exec chroot "$root" "$@"'
)
# runc needs a root that is a mount.
HOST_RUNS = (
    'mount --bind "$0" "$0"; for d in dev proc sys; do mount --rbind /$d "$0/$d"; done;'
    ' exec /usr/sbin/chroot "$0" "$@"'
)

# The image takes a minute to build.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a host with runc, Docker's configuration and a driver, without an interpreter."""
    made = tmp_path_factory.mktemp("host")
    for name in PLACES:
        (made / name).mkdir(parents=True)
    (made / "etc/docker/daemon.json").write_text(DAEMON_JSON, encoding="utf-8")
    (made / "etc/containerd").mkdir()
    (made / "etc/containerd/config.toml").write_text(CONFIG_TOML, encoding="utf-8")
    roots.copy_programs(made, "runc", "containerd", "containerd-shim-runc-v2", "ctr")
    make_node(made / NODE[1:], "t4")
    assert not [path for path in made.rglob("*") if re.match(r"(python|(ba|da|a)?sh$)", path.name)]
    return made


def image_command(unpacked: Path, host: Path, *words: str) -> list[str]:
    """Return the command that runs `words` in the image, with the host's root mounted at /host."""
    return ["unshare", "--mount", "sh", "-c", IMAGE_RUNS, str(unpacked), str(host), *words]


def on_host(host: Path, *words: str) -> Result:
    """Run `words` with the host's root as root."""
    env = {"PATH": "/usr/bin", "GPUHOOK_HOST_ROOT": NODE}
    command = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", HOST_RUNS, str(host), *words]
    return run_command(command, env)


def gpuhook(unpacked: Path, host: Path, *words: str) -> str:
    """Run gpuhook in the image with these words, and return its output."""
    command = image_command(unpacked, host, "/usr/bin/gpuhook", *words)
    done = run_command(command, {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})  # fmt: skip
    assert done.rc == 0, done.stderr
    return done.stdout


def installed_files(host: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of each file on the host that an installation can write."""
    paths = [*(host / "opt").rglob("*"), *(host / "etc/docker").rglob("*")]
    return {str(p): (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in paths if not p.is_dir()}


@pytest.fixture(scope="module")
def installed_host(unpacked: Path, host: Path) -> Path:
    """Return the host with gpuhook installed and Docker configured."""
    output = gpuhook(unpacked, host, "install", "--host-root", "/host", "--engine", "docker")
    assert "installed" in output
    return host


class _Page(BaseHTTPRequestHandler):
    """A page of metrics for wget."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"gpuhook_replicas 4\n")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_wget_of_the_image_reads_metrics(unpacked: Path, host: Path) -> None:
    """`kubectl exec POD -- wget` starts a program without a shell."""
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        command = image_command(unpacked, host, "/usr/bin/wget", "-q", "-O", "-", address)
        done = run_command(command)
        server.shutdown()
    assert done.stdout == "gpuhook_replicas 4\n", done.stderr


def test_image_has_no_files_of_a_distribution(unpacked: Path) -> None:
    """Programs are links into the tree; the image has no package manager and no second Python."""
    links = {p.name: os.readlink(p) for p in (unpacked / "usr/bin").iterdir() if p.is_symlink()}
    assert {"sh", "gpuhook", "config-manager", "nvidia-device-plugin"} <= set(links)
    assert all(target.startswith("/opt/gpuhook/") for target in links.values())
    pythons = [p for p in unpacked.rglob("python3*") if p.is_file() and os.access(p, os.X_OK)]
    inside = {str(p.relative_to(unpacked)) for p in pythons}
    assert inside == {"opt/gpuhook/libexec/python3", "opt/gpuhook/python/bin/python3"}


def test_image_has_a_bill_of_materials(unpacked: Path) -> None:
    """The bill of materials lists the packages of Debian and Python with their versions."""
    path = unpacked / "opt/gpuhook/share/gpuhook/sbom.spdx.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["spdxVersion"] == "SPDX-2.3"
    versions = {part["name"]: part["versionInfo"] for part in document["packages"]}
    assert {"gpuhook", "libc6", "libpython3.11-stdlib", "busybox-static", "grpcio", "click"} <= set(
        versions
    )
    assert all(versions.values())
    known = {part["SPDXID"] for part in document["packages"]}
    assert len(known) == len(document["packages"])
    licences = unpacked / "opt/gpuhook/share/licenses"
    assert (licences / "busybox-static/copyright").is_file()
    assert (licences / "gpuhook/LICENSE").is_file()


@pytest.fixture(scope="module")
def described_host(installed_host: Path) -> Path:
    """Return the host with a CDI spec, and with a root file system for containers."""
    result = on_host(
        installed_host, "/opt/gpuhook/bin/gpuhook", "generate-cdi", f"--driver-root={NODE}",
        f"--dev-root={NODE}", f"--host-root={NODE}", "--output-file=/etc/cdi/nvidia.yaml",
    )  # fmt: skip
    assert result.rc == 0, result.stderr
    roots.copy("debian", installed_host / "container/root")
    return installed_host


def test_container_has_gpu_on_a_host_without_python(described_host: Path) -> None:
    """The installed wrapper provides the GPU, the driver's files and the loader cache."""
    installed_host = described_host
    spec = (installed_host / "etc/cdi/nvidia.yaml").read_text(encoding="utf-8")
    assert "path: /opt/gpuhook/bin/gpuhook-hook" in spec
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    bundle(
        installed_host / "container",
        Path("/container/root"),
        ["/bin/sh", "-c", script],
        ["NVIDIA_VISIBLE_DEVICES=all"],
    )
    run = on_host(
        installed_host, "/opt/gpuhook/bin/gpuhook-runtime", "--root", "/run/state", "run",
        "--bundle", "/container", "image-test",
    )  # fmt: skip
    assert run.rc == 0, run.stderr
    assert run.stdout.split() == ["/dev/nvidia0", "1"]


def test_image_has_the_modules_of_the_dra_driver(unpacked: Path, host: Path) -> None:
    """It starts up to the API server, for which this pod has no token."""
    words = ["/usr/bin/gpuhook", "dra", "run", "--node-name", "n1"]
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    done = run_command(image_command(unpacked, host, *words), env)
    assert done.rc == 2
    assert "/var/run/secrets/kubernetes.io/serviceaccount has no token" in done.stderr


@pytest.fixture
def runtime(described_host: Path) -> Iterator[FakeRuntime]:
    """Yield a container runtime that waits for NRI plugins on the host."""
    made = FakeRuntime(described_host / "var/run/nri/nri.sock")
    yield made
    made.close()


@pytest.fixture
def nri_pod(unpacked: Path, described_host: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the container of the chart's NRI plugin, with the host's root at /host."""
    values = {
        "env": [
            {"name": "GPUHOOK_HOST_ROOT", "value": NODE},
            {"name": "GPUHOOK_NRI_NAMESPACES", "value": "default"},
        ]
    }
    inner = container(rendered(NRI | {"nri": {"enabled": True, **values}}), "-nri")
    env = {one["name"]: one["value"] for one in inner["env"]}
    env |= {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    command = ["unshare", "--mount", "sh", "-c", POD_RUNS, str(unpacked), str(described_host)]
    log = (described_host / "tmp/nri.log").open("wb")
    with subprocess.Popen(
        [*command, *inner["command"], *inner["args"]], env=env, stderr=log
    ) as process:
        yield process
        process.kill()
    log.close()


def test_nri_plugin_of_the_chart_gives_gpus(
    described_host: Path, runtime: FakeRuntime, nri_pod: subprocess.Popen[bytes]
) -> None:
    """It has the node's specs and settings, and names the node's hook; SIGTERM ends it."""
    link = runtime.accept()
    assert link.start("containerd", "1.7.24~ds1") == 8
    asking = fake_runtime.container(["NVIDIA_VISIBLE_DEVICES=0"])
    adjust = link.create(fake_runtime.pod(), asking).adjust
    assert "/dev/nvidia0" in {device.path for device in adjust.linux.devices}
    (hook,) = adjust.hooks.create_container
    assert hook.path == "/opt/gpuhook/bin/gpuhook-hook"
    assert all(not mount.source.startswith("/host") for mount in adjust.mounts)
    assert any((described_host / "run/gpuhook").iterdir())
    nri_pod.send_signal(signal.SIGTERM)
    assert nri_pod.wait(60) == 0


@pytest.fixture
def containerd(installed_host: Path) -> Iterator[None]:
    """Run the host's own containerd with the host's root."""
    command = ["unshare", "--mount", "/bin/sh", "-c", HOST_RUNS, str(installed_host)]
    env = {"PATH": "/usr/bin:/usr/sbin:/bin", "GPUHOOK_HOST_ROOT": NODE}

    def answers() -> bool:
        return on_host(installed_host, "/usr/bin/ctr", "version").rc == 0

    log = installed_host / "tmp/containerd.log"
    with engines.run_daemon([*command, "/usr/bin/containerd"], log, answers, env):
        yield


def test_containerd_is_configured_and_restored(
    unpacked: Path, described_host: Path, containerd: None
) -> None:
    """The handler has the options of the default one and runs a container; undo restores the
    file.
    """
    installed_host = described_host
    config = installed_host / "etc/containerd/config.toml"
    words = ["install", "--host-root", "/host", "--engine", "containerd", "-o", "json"]
    document = json.loads(gpuhook(unpacked, installed_host, *words))
    engine_files = [installed_host / path[1:] for path in document["engines"][0]["files"]]
    assert all(path.is_relative_to(config.parent) for path in engine_files)
    text = "".join(path.read_text(encoding="utf-8") for path in engine_files)
    (program,) = set(re.findall(r'BinaryName = "(/opt/.*gpuhook-runtime)"', text))
    assert "SystemdCgroup = true" in text
    again = json.loads(gpuhook(unpacked, installed_host, *words))
    assert again["changed"] is False
    ran = on_host(
        installed_host, "/usr/bin/ctr", "run", "--rm", "--runc-binary", program, "--env",
        "NVIDIA_VISIBLE_DEVICES=all", "--rootfs", "/container/root", "ctr-test",
        "/bin/ls", "/dev/nvidia0",
    )  # fmt: skip
    assert ran.rc == 0, ran.stderr
    assert ran.stdout.split() == ["/dev/nvidia0"]
    gpuhook(unpacked, installed_host, "configure", "undo", "containerd", "--host-root", "/host")
    assert [path.name for path in config.parent.rglob("*")] == ["config.toml"]
    assert config.read_text(encoding="utf-8") == CONFIG_TOML


def test_second_installation_writes_nothing(unpacked: Path, installed_host: Path) -> None:
    """A second start of the pod changes neither a file nor the engine."""
    before = installed_files(installed_host)
    words = ["install", "--host-root", "/host", "--engine", "docker", "-o", "json"]
    document = json.loads(gpuhook(unpacked, installed_host, *words))
    assert document["changed"] is False
    assert installed_files(installed_host) == before


def test_upgrade_and_rollback_keep_a_running_container(
    unpacked: Path, described_host: Path
) -> None:
    """A container runs during an upgrade and a rollback; Docker's file does not change."""
    installed_host = described_host
    other = unpacked / "tmp/next"
    subprocess.run(["cp", "-al", str(unpacked / "opt/gpuhook"), str(other)], check=True)
    tree = json.loads((other / "tree.json").read_text(encoding="utf-8"))
    (other / "tree.json").unlink()
    (other / "tree.json").write_text(json.dumps(tree | {"version": "9.9"}), encoding="utf-8")
    bundle(installed_host / "running", Path("/container/root"), ["/bin/sleep", "1000"])
    before = (installed_host / "etc/docker/daemon.json").stat()

    def runtime(*words: str) -> str:
        program = "/opt/gpuhook/bin/gpuhook-runtime"
        done = on_host(installed_host, program, "--root", "/run/state", *words)
        assert done.rc == 0, done.stderr
        return done.stdout

    words = ["install", "--host-root", "/host", "--engine", "docker", "-o", "json"]
    quiet = 'exec "$@" >/dev/null 2>&1'
    runs = ["run", "--detach", "--bundle", "/running", "running-test"]
    tools = "/opt/gpuhook/current/tools/sh"
    program = "/opt/gpuhook/bin/gpuhook-runtime"
    started = on_host(
        installed_host, tools, "-c", quiet, "sh", program, "--root", "/run/state", *runs
    )  # fmt: skip
    assert started.rc == 0, started
    try:
        newer = json.loads(gpuhook(unpacked, installed_host, *words, "--tree", "/tmp/next"))
        assert newer["version"].startswith("9.9-")
        assert len(newer["kept"]) == 1
        assert "up\n" in runtime("exec", "running-test", "/bin/echo", "up")
        older = json.loads(gpuhook(unpacked, installed_host, *words))
        assert older["version"] == newer["kept"][0]
        assert json.loads(runtime("state", "running-test"))["status"] == "running"
    finally:
        runtime("delete", "--force", "running-test")
    assert (installed_host / "etc/docker/daemon.json").stat() == before


def test_end_of_the_pod_removes_the_installation(unpacked: Path, host: Path) -> None:
    """SIGTERM restores the engine's file byte for byte, and removes the tree."""
    words = ["install", "--host-root", "/host", "--engine", "docker", "--stay", "--undo-on-exit"]
    command = image_command(unpacked, host, "/usr/bin/gpuhook", *words)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert b"/opt/gpuhook" in first
        eventually(lambda: b"nvidia" in (host / "etc/docker/daemon.json").read_bytes())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert (host / "etc/docker/daemon.json").read_text(encoding="utf-8") == DAEMON_JSON
    assert not (host / "opt/gpuhook").exists()
    assert not (host / "var/lib/gpuhook").exists()


@pytest.fixture
def operators_plugin(unpacked: Path, host: Path) -> Iterator[Callable[[], int]]:
    """Start the plugin as the GPU Operator does; yield a function that returns its pid."""
    ready = unpacked / "run/nvidia/validations/driver-ready"
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.write_text("NVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n", encoding="utf-8")
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "FAIL_ON_INIT_ERROR": "false"}
    entrypoint = unpacked / "bin/entrypoint.sh"
    entrypoint.write_text(ENTRYPOINT, encoding="utf-8")
    entrypoint.chmod(0o755)
    entrypoint = unpacked / "bin/entrypoint.sh"
    entrypoint.write_text(ENTRYPOINT, encoding="utf-8")
    entrypoint.chmod(0o755)
    command = image_command(unpacked, host, "/bin/sh", "-c", "/bin/entrypoint.sh")
    log = (unpacked / "tmp/plugin.log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def process_name() -> bytes:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0]

    def pid() -> int:
        eventually(lambda: process_name() == b"nvidia-device-plugin")
        return process.pid

    yield pid
    process.kill()
    process.wait()
    log.close()


def test_config_manager_finds_and_signals_the_plugin(
    unpacked: Path, host: Path, operators_plugin: Callable[[], int]
) -> None:
    """The Operator's entry point starts the plugin under a name that config-manager finds."""
    pid = operators_plugin()
    log = unpacked / "tmp/plugin.log"
    eventually(lambda: "no GPU" in log.read_text() or "driver" in log.read_text())
    code = (
        "import sys; sys.path[:0] = ['/opt/gpuhook/lib/gpuhook', '/opt/gpuhook/lib/packages']; "
        "from gpuhook.device_plugin.config_manager import manager_process; "
        "print(manager_process.processes('nvidia-device-plugin'))"
    )
    command = image_command(unpacked, host, "/opt/gpuhook/libexec/python3", "-IS", "-c", code)
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert pid in json.loads(found)
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: "SIGHUP" in log.read_text())


def test_image_has_config_manager(unpacked: Path, host: Path) -> None:
    """Outside of a pod config-manager ends with an error."""
    command = image_command(unpacked, host, "/bin/config-manager")
    done = run_command(command, {})
    assert done.rc == 1
    assert "GH2110" in done.stderr
