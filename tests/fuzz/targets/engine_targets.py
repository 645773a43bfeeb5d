# SPDX-License-Identifier: Apache-2.0
"""Configurations, state and databases of container engines, and the edits of their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuhook.config import toolkit_import
from gpuhook.containers.stores import bolt, containerd_store, docker_store, libpod, store_files
from gpuhook.containers.warm import runtime_state
from gpuhook.doctor.facts import toolkit_settings
from gpuhook.engines.configure import configure_record
from gpuhook.engines.configure.containerd import base_spec
from gpuhook.engines.configure.docker import json_text
from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    engine_config,
    oci_hooks,
    podman_config,
    toml_document,
    unit_flags,
)  # fmt: skip
from gpuhook.engines.state import dependent_containers, state_directories
from gpuhook.engines.toml import toml_edit, toml_text
from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from tests.fuzz.fuzz_target import fuzz_target, scratch_file, text
from tests.unit.containers.stores import real_files

CONTAINERD = """\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc" # a comment
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/gpuhook-runtime"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
"""
CRIO = """\
[crio.runtime]
default_runtime = "crun"
hooks_dir = ["/usr/share/containers/oci/hooks.d"]
[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/bin/gpuhook-runtime"
[crio.nri]
enable_nri = true
"""
PODMAN = (
    '[engine]\nruntime = "crun"\nhooks_dir = ["/x"]\n[engine.runtimes]\nnvidia = ["/usr/bin/g"]\n'
)
DOCKER = json.dumps(
    {
        "data-root": "/d",
        "default-runtime": "nvidia",
        "runtimes": {"nvidia": {"path": "/usr/bin/gpuhook-runtime", "runtimeArgs": []}},
        "features": {"cdi": True},
    },
    indent=2,
)
HOOK = '{"version":"1.0.0","hook":{"path":"/usr/bin/gpuhook-hook","args":["a"]},'
HOOK += '"when":{"always":true},"stages":["prestart"]}'
UNIT = "[Service]\nEnvironment='A=b c' D=e\nEnvironmentFile=-/etc/x\n"
UNIT += "ExecStart=/usr/bin/dockerd -H fd:// $A \\\n --add-runtime=x=/y\n"
TOOLKIT = """\
disable-require = false
accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
environment = []
load-kmods = true
[nvidia-container-runtime]
log-level = "info"
runtimes = ["runc", "crun"]
[nvidia-container-runtime.modes.cdi]
spec-dirs = ["/etc/cdi"]
"""


class SameContent:
    """A node on which each file has the same content, and each directory the same files."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, path: str) -> bytes | None:
        return self.content if path.count("/") < 7 else None

    def names(self, path: str) -> list[str]:
        return ["a.toml", "b.json", "c.conf", "ab" * 32]


@fuzz_target([CONTAINERD, CRIO, PODMAN, DOCKER, HOOK, UNIT], everyday=40)
def configurations(data: bytes) -> None:
    """Any content of a configuration is read, with its problems."""
    files = SameContent(data)
    for daemon in (None, (1, 7), (2, 1)):
        assert containerd_config.read(files, daemon=daemon).configuration.runtimes
    assert docker_config.read(files).configuration.runtimes
    crio = crio_config.read(files)
    crio.nri((1, 30))
    assert podman_config.read(files, "/home/a").configuration.default
    assert len(oci_hooks.read(files, ["/x", "/y"])) == 1
    unit_flags.main_file(unit_flags.unit_options(files, "docker.service"))
    docker_config.is_reloaded(data, None)
    engine_config.parse_version(text(data))


@fuzz_target([CONTAINERD, CRIO, PODMAN, DOCKER], everyday=40)
def state_places(data: bytes) -> None:
    """The containers of all engines on a node whose files have any content."""
    files = SameContent(data)
    for one in dependent_containers.dependent_containers(files):
        assert one.engine
    state_directories.containerd(files, {}, "/run/containerd")
    state_directories.docker(files, {})
    state_directories.crio(files, {})
    state_directories.podman(files)


SETTINGS = (
    toml_edit.Setting(("plugins", "io.containerd.nri.v1.nri", "disable"), False),
    toml_edit.Setting(("a", "b.c"), ["x", "y"]),
    toml_edit.Setting(("version",), 2),
)


@fuzz_target(
    [CONTAINERD, CRIO, 'a = {b = 1}\n[[x]]\ny = """\na"""\n'],
    allowed=(GpuhookError, toml_document.UnreadableTomlError),
    everyday=60,
)
def toml_edits(data: bytes) -> None:
    """An edited file has the settings, a second edit changes nothing, and the edit is undone."""
    before = toml_document.parsed(data)
    toml_document.line_of(data, ("plugins", "cri"))
    after = toml_edit.edited("/x", data, SETTINGS)
    found = toml_document.parsed(after)
    assert found["version"] == 2
    assert found["a"]["b.c"] == ["x", "y"]
    assert toml_edit.edited("/x", after, SETTINGS) == after
    if data == toml_text.without_marked_lines(data):  # a file with marks of gpuhook is no original
        assert toml_document.parsed(toml_text.without_marked_lines(after)) == before
    toml_text.without_marks(after)
    toml_edit.without_keys("/x", data, [("plugins",), ("a", "b.c")])


@fuzz_target(
    [DOCKER, '{"a":{"b":1},\r\n"c":[{}]}', "{ }"], size=8192, allowed=(ValueError, KeyError)
)
def json_edits(data: bytes) -> None:
    """A member is set and removed in the text; the others keep theirs."""
    found = documents.parse_json_object(data)
    if len(data) != len(data.decode().encode()) or _has_twice(data):
        return
    content = data.decode("utf-8-sig")
    json_text.members(content)
    after = json_text.with_member(content, ("runtimes", "x"), {"path": "/y"})
    wanted = found.get("runtimes")
    assert json.loads(after)["runtimes"]["x"] == {"path": "/y"}
    assert {k: v for k, v in json.loads(after).items() if k != "runtimes"} == {
        key: value for key, value in found.items() if key != "runtimes"
    }
    if not isinstance(wanted, dict) or "x" not in wanted:
        json_text.without_member(after, ("runtimes", "x"))
    docker_config.line_of(data, "runtimes")


def _has_twice(data: bytes) -> bool:
    """Return whether an object has a key twice, which dockerd refuses."""
    has_twice: list[bool] = []

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        has_twice.append(len(found) != len(pairs))
        return found

    documents.parse_json(data, object_pairs_hook=to_object)
    return any(has_twice)


@fuzz_target([HOOK, '{"ociVersion":"1","hooks":{"prestart":[{"path":"/g"}],"x":[]},"n":1.50}'])
def containerd_base_spec(data: bytes) -> None:
    """A base spec without the hook; one that is no spec is unchanged."""
    once = base_spec.without(data, "/g")
    assert base_spec.without(once, "/g") == once


class StoreContents:
    """The files of a store, all with the same content."""

    def __init__(self, content: bytes, identity: str) -> None:
        self._content = content
        self._identity = identity

    def read(self, path: str) -> bytes | None:
        return self._content

    def names(self, path: str) -> list[str]:
        return [self._identity]


def databases() -> list[bytes]:
    return [real_files.CONTAINERD_DATABASE, real_files.PODMAN_DATABASE]


@fuzz_target(databases, size=1 << 17, everyday=20)
def engine_databases(data: bytes) -> None:
    """SQLite and BoltDB, of which nothing is computed or copied without bounds."""
    files = StoreContents(data, real_files.PODMAN_ID)
    for _, one in containerd_store.containers(files, containerd_store.ROOT):
        assert one.engine == "containerd"
    for found in libpod.containers(files, "/s"):
        assert found.id == real_files.PODMAN_ID
    with suppress(bolt.BrokenBoltError):
        list(bolt.root(data).entries())


@fuzz_target([real_files.DOCKER_CONFIG, b"{}"], everyday=100)
def docker_containers(data: bytes) -> None:
    files = StoreContents(data, real_files.DOCKER_ID)
    for one in docker_store.containers(files, "/d"):
        assert one.name.isprintable()
    assert all(root.startswith("/") for root in docker_store.data_roots(files))
    docker_store.data_root_of(store_files.document(data))


RUNC = json.dumps(
    {
        "id": "x", "init_process_pid": 7, "init_process_start": 99,
        "cgroup_paths": {"devices": "/sys/fs/cgroup/devices/x", "": "/sys/fs/cgroup/x"},
        "config": {"rootfs": "/r", "labels": ["bundle=/b"]},
    }
)  # fmt: skip
CRUN = (
    '{"pid":7,"process-start-time":99,"cgroup-path":"/x","rootfs":"/r","bundle":"/b","created":"x"}'
)


@fuzz_target([RUNC, CRUN, '{"init_process_pid":true}'], allowed=(runtime_state.UnreadableError,))
def runtime_states(data: bytes) -> None:
    """The state files of runc and crun, which a user may write."""
    with open(scratch_file(data), "rb") as file:
        document = runtime_state._document(file.fileno(), "state", None)
    readers: list[Callable[[str, dict[str, Any]], runtime_state.Found]] = [
        runtime_state._of_runc,
        runtime_state._of_crun,
    ]
    for reader in readers:
        try:
            found = reader("x", document)
        except runtime_state.UnreadableError:
            continue
        assert 0 <= found.pid < 1 << 31


RECORD = {
    "schema": configure_record.SCHEMA, "engine": "docker", "config": "/c", "drop_in": "",
    "wanted": {"route": "wrapper", "name": "nvidia", "program": "/g", "hook": "/h"},
    "files": [], "directories": ["/d"], "is_taken_up": False,
    "service": {"units": ["docker.service"], "processes": ["dockerd"], "reloads": True},
}  # fmt: skip


@fuzz_target([json.dumps(RECORD)])
def configure_records(data: bytes) -> None:
    configure_record.parsed(data, "/record")


@fuzz_target([TOOLKIT, TOOLKIT.replace("false", '"x"')], everyday=40)
def toolkit_config(data: bytes) -> None:
    """NVIDIA's config.toml becomes settings that gpuhook takes."""
    found = toolkit_import.import_file(scratch_file(data, "config.toml"))
    toolkit_import.text(found, "config.toml")
    assert toolkit_settings.leaves(found.document) is not None
