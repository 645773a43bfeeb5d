# SPDX-License-Identifier: Apache-2.0
"""doctor's checks on a node whose files have any content, and the undo of edited files."""

from __future__ import annotations

import json
import posixpath
import stat
from contextlib import suppress
from functools import cache
from typing import Any

from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.device_plugin.api_server import client
from gpuhook.doctor.check_list import checks
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.engines.configure.containerd import configure_containerd
from gpuhook.engines.configure.docker import configure_docker
from gpuhook.engines.configure.drop_in import configure_crio, configure_podman
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.errors import GpuhookError
from gpuhook.install import engine_choice, leftovers
from gpuhook.node_facts.check import Check, ExaminedNode, as_findings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import MAX_FILE, Status
from gpuhook.vendors.nvidia.hot.rootfs import cuda_compat
from tests.fuzz.fuzz_target import fuzz_target, scratch_file, text
from tests.fuzz.targets import cdi_targets, engine_targets, kernel_targets, kubernetes_targets

PLUGINS = "/var/lib/kubelet/device-plugins"
FILES: dict[str, str | bytes] = {
    "/etc/docker/daemon.json": engine_targets.DOCKER,
    "/etc/containerd/config.toml": engine_targets.CONTAINERD,
    "/etc/crio/crio.conf": engine_targets.CRIO,
    "/etc/containers/containers.conf": engine_targets.PODMAN,
    "/usr/share/containers/oci/hooks.d/x.json": engine_targets.HOOK,
    "/etc/nvidia-container-runtime/config.toml": engine_targets.TOOLKIT,
    "/lib/systemd/system/docker.service": engine_targets.UNIT,
    "/etc/cdi/nvidia.yaml": cdi_targets.YAML,
    "/var/run/cdi/nvidia.json": cdi_targets.JSON,
    "/etc/cdi/amd.json": cdi_targets.JSON.replace("nvidia.com", "amd.com"),
    "/proc/devices": kernel_targets.DEVICES,
    "/proc/driver/nvidia/gpus/0000:1b:00.0/information": kernel_targets.INFORMATION,
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n",
    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n",
    "/proc/driver/nvidia-caps/mig-minors": kernel_targets.MINORS,
    "/proc/self/mountinfo": kernel_targets.MOUNTS,
    "/proc/modules": "nvidia 1 2 - Live 0x0\namdgpu 1 0 - Live 0x0\n",
    "/proc/cmdline": "root=/dev/sda1 modprobe.blacklist=nouveau,amdgpu\n",
    "/sys/class/kfd/kfd/topology/nodes/1/properties": kernel_targets.KFD,
    "/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "7\n",
    "/sys/bus/pci/devices/0000:06:00.0/vendor": "0x1002\n",
    "/sys/bus/pci/devices/0000:06:00.0/class": "0x038000\n",
    "/sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:1b:00.0/class": "0x030200\n",
    "/sys/bus/pci/drivers/amdgpu/0000:06:00.0/mem_info_vram_total": "1024\n",
    "/etc/modprobe.d/x.conf": "blacklist amdgpu\noptions nvidia NVreg_ModifyDeviceFiles=0\n",
    "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
    "/etc/group": "video:x:44:a\nrender:x:105:\n",
    "/etc/passwd": "a:x:1000:44::/home/a:/bin/sh\n",
    "/etc/subgid": "a:100000:65536\n",
    "/etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
    "/etc/gpuhook/config.yaml": "request: {acceptEnvWhenUnprivileged: true}\n",
    "/run/gpuhook/containers/x.json": '{"schema":"gpuhook/ledger/v1","id":"c","root":"/r"}',
    "/run/gpuhook/node.json": '{"driver":{},"gpus":[{"minor":0,"uuid":"GPU-1"}]}',
    "/var/lib/rancher/k3s/server/manifests/x.yaml": "kind: RuntimeClass\nhandler: nvidia\n",
    "/usr/share/vulkan/icd.d/nvidia_icd.json": '{"ICD":{"library_path":"libGLX_nvidia.so.0"}}',
    f"{PLUGINS}/kubelet_internal_checkpoint": kubernetes_targets.CHECKPOINT,
    "/var/lib/kubelet/dra_manager_state": kubernetes_targets.NEW,
    "/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/x.sock\n",
    "/var/lib/kubelet/pods/u/containers/nvidia-device-plugin/x": "x",
    "/var/log/pods/n_p_u/nvidia-device-plugin/0.log": "2026 stderr F error\n",
}
NAMES = tuple(FILES)


class ContentTree:
    """The files of a node, one of them with other content."""

    root = "/"

    def __init__(self, path: str, content: bytes) -> None:
        self._contents = {**encoded(), path: content}

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        content = self._contents.get(posixpath.normpath(path))
        return None if content is None else content[:limit]

    def names(self, path: str) -> list[str]:
        return list(directories().get(posixpath.normpath(path), ()))

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        if posixpath.normpath(path) in self._contents:
            return Status(stat.S_IFREG | 0o644, 0, 0, 0, 0, 1, 1.0)
        return Status(stat.S_IFDIR | 0o755, 0, 0, 0, 0, 1, 1.0) if self.names(path) else None

    def real(self, path: str) -> str | None:
        return posixpath.normpath(path) if self.status(path) else None


@cache
def encoded() -> dict[str, bytes]:
    return {path: one if isinstance(one, bytes) else one.encode() for path, one in FILES.items()}


@cache
def directories() -> dict[str, list[str]]:
    """Return the names in each directory."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        while path != "/":
            above, name = posixpath.split(path)
            found.setdefault(above, set()).add(name)
            path = above
    return {path: sorted(names) for path, names in found.items()}


@cache
def all_checks() -> tuple[Check, ...]:
    return tuple(checks())


def one_file() -> list[bytes]:
    return [bytes([place]) + content for place, content in enumerate(encoded().values())]


@fuzz_target(one_file, size=8192, everyday=20)
def checked_node(data: bytes) -> None:
    """The first byte chooses the file. No check has an internal error, and none reads for ever."""
    place = NAMES[data[0] % len(NAMES)] if data else NAMES[0]
    node = ExaminedNode(ContentTree(place, data[1:]), Readings({}))
    for check in all_checks():
        with suppress(OSError, GpuhookError):
            for finding in as_findings(check.look(node)):
                assert finding.status


OPTIONS = EngineOptions("wrapper", "nvidia", "/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-hook")
OURS = (
    '# Written by gpuhook\nversion = 2\n[a]\nx = 1 # gpuhook: was "y"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/g"\n'
)


@fuzz_target(
    [engine_targets.DOCKER, engine_targets.CONTAINERD, engine_targets.CRIO, OURS], everyday=40
)
def undone_configuration(data: bytes) -> None:
    """A file that a person edited since: gpuhook's part is removed, once."""
    for engine, path in (
        (configure_docker, "/etc/docker/daemon.json"),
        (configure_containerd, "/etc/containerd/config.toml"),
        (configure_containerd, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl"),
        (configure_crio, "/etc/crio/crio.conf.d/99-gpuhook.conf"),
        (configure_podman, "/etc/containers/containers.conf.d/99-gpuhook.conf"),
    ):
        for before in (None, b"", data):
            try:
                left = engine.without(path, data, OPTIONS, before)
            except GpuhookError:
                continue
            assert left is None or engine.without(path, left, OPTIONS, before) in (left, None)


@fuzz_target([cdi_targets.YAML, cdi_targets.JSON, '{"runtimes":{}}', "[crio]\n"], everyday=40)
def files_of_a_host(data: bytes) -> None:
    """What an installation reads of its host."""
    for path in ("/etc/cdi/x.yaml", "/etc/cdi/x.json"):
        found = leftovers._own_form(path, data)
        assert found is None or leftovers._calls_hook(found, "/opt") in (True, False)
    engine_choice._is_object(data)
    client._message(client._document(data))


NOTE = '{"CUDA Version": "12.4", "Driver": ["535", "550"]}'


@fuzz_target([NOTE, NOTE.lower(), "[]"])
def compatibility_note(data: bytes) -> None:
    """The note in an image's libcuda.so."""
    for driver in ("550.54.15", ""):
        for version in ("555.42", "1.1", text(data)[:20]):
            assert cuda_compat._fits(data, version, driver, "12.4") in (True, False)


@fuzz_target([json.dumps({"boot": "b", "claim": {}}), kernel_targets.CGROUP])
def records(data: bytes) -> None:
    """The record in a claim's CDI spec, and the cgroup of a process."""
    specs: Any = ClaimSpecs.__new__(ClaimSpecs)
    path = scratch_file(b"# gpuhook: " + data, "claim.json")
    specs.path = lambda _uid: path
    specs._boot = "b"
    assert specs.record("u") is None
    DeviceRules.parse(data, [], "")
