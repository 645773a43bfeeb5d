# SPDX-License-Identifier: Apache-2.0
"""Nodes as files describe them: inventories, support bundles, and the sysfs of AMD's driver."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from contextlib import suppress
from pathlib import Path

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.node_facts.sources import node_readings
from gpuhook.support_bundle import (
    bundle_archive,
    bundle_reader,
    bundle_records,
    log_lines,
    redaction,
)  # fmt: skip
from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory import amd_dump, sysfs_gpu
from gpuhook.vendors.amd.usage import kfd_processes
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.fuzz.fuzz_target import fuzz_target, scratch, scratch_file, text
from tests.unit.support_bundle.test_bundle_hostile import TREE

PROFILES = Path(inventory_file.path("t4")).parent


def inventories() -> list[bytes]:
    return [(PROFILES / f"{name}.yaml").read_bytes() for name in ("t4", "radeon")] + [b"gpus: []\n"]


@fuzz_target(inventories, size=16384, everyday=20)
def inventory(data: bytes) -> None:
    """A dump that was read and written is the same node."""
    document = inventory_file.parse(data, "x.yaml")
    if "amd" in document:
        node = amd_dump.of_document(document, "x.yaml")
        assert amd_dump.from_section(amd_dump.section(node)) == node
    if "gpus" in document:
        found = dump_file.of_document(document, "x.yaml")
        for form in ("yaml", "json"):
            written = dump_file.text(found, form).encode()
            assert dump_file.parse(written, "y") == found


def packed(**members: bytes) -> bytes:
    """Return the tar of a bundle, not compressed."""
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo("gpuhook-bundle/" + name.replace("__", "."))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return kept.getvalue()


def bundles() -> list[bytes]:
    manifest = {"schema": "gpuhook/support-bundle/v1", "driver_root": "/", "dev_root": "/"}
    readings = {"gpuhook": {"document": {}, "trouble": "", "code": "", "hint": ""}}
    whole = packed(
        manifest__json=json.dumps(manifest).encode(),
        tree__json=json.dumps(TREE).encode(),
        readings__json=json.dumps(readings).encode(),
    )
    return [whole, packed(manifest__json=b"{}"), whole.replace(b"gpuhook-bundle/", b"../")]


@fuzz_target(bundles, size=1 << 15, everyday=30)
def bundle(data: bytes) -> None:
    """The tar of a bundle, compressed: its node, or why it is none."""
    path = scratch_file(gzip.compress(data, 1), "bundle.tar.gz")
    node = bundle_reader.bundle_node(path)
    with suppress(OSError):  # what the bundle does not have
        node.tree.names("/")
        node.tree.read("/proc/devices")


@fuzz_target(lambda: [gzip.compress(one) for one in bundles()], size=8192)
def bundle_file(data: bytes) -> None:
    bundle_archive.read(scratch_file(data, "bundle.tar.gz"))


RECORDS = {
    **TREE, "absent": ["/x"], "names": {"/etc": ["a"]}, "errors": [["read", "/a", 13]],
    "real": {"/a": "/b", "/c": None},
    "status": {"/etc": {"mode": 16877, "uid": 0, "gid": 0, "major": 0, "minor": 0, "size": 1,
                        "mtime": 1, "target": ""}},
    "lstat": {},
}  # fmt: skip


@fuzz_target([json.dumps(RECORDS)], allowed=(GpuhookError, ValueError), everyday=100)
def bundle_tree(data: bytes) -> None:
    bundle_records.parsed(documents.parse_json_object(data), {"/a": b"x"})


SHAPES = {
    node_readings.UNITS: {"docker.service": {"load": "loaded"}},
    node_readings.PROCESSES: [{"pid": 1, "name": "a", "argv": ["a"], "started": 1.5, "exe": "/a"}],
    node_readings.CONTAINERS: {"looked_at": 1, "trouble": [], "containers": []},
    node_readings.CONTAINERD: {"config": "x", "command": "y"},
}


@fuzz_target([json.dumps(one) for one in SHAPES.values()], allowed=(ValueError,))
def bundle_readings(data: bytes) -> None:
    document = documents.parse_json(data)
    for name in bundle_reader._SHAPES:
        try:
            bundle_reader.require_shape(name, document)
        except bundle_records.ShapeError:
            continue


LOG = '{"timestamp":"2026-01-01T00:00:00Z","level":"info","event":"started","resource":"a"}\n'
TEXTS = [
    LOG, "time=2026-01-01T00:00:00Z level=warning event=started\n", "A=b # c\nPASSWORD=x\n",
    '{"data-root":"/d","registry":{"token":"x"}}', "version = 2\n[a.b]\nc = 'd' # e\n",
    "version: v1\nflags: {migStrategy: none}\n# x\n", "dockerd\0--a=b\0-H\0tcp://u:p@h:1\0",
]  # fmt: skip
PLACES = (
    "/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/gpuhook/config.yaml",
    "/proc/devices", "/proc/1/cmdline", "/etc/crio/crio.conf", "/proc/1/cgroup", "/etc/os-release",
    "/etc/ld.so.conf", "/run/gpuhook/containers/x.json", "/etc/modprobe.d/x.conf",
)  # fmt: skip


@fuzz_target(TEXTS, everyday=30)
def redacted_files(data: bytes) -> None:
    """No content makes a bundle fail, and no password is kept."""
    for place in PLACES:
        kept = redaction.AllowList().content(place, data, place)
        assert kept is None or redaction.AllowList().content(place, kept, place) is not None
    for one in text(data).splitlines():
        log_lines.line(one)
        log_lines.kernel_line(one, ())


FACTS = ["0x74a1\n", "SPX\n", "GPU-1\n", "1 2 3\n", "0000:06:00.0\n", "18446744073709551616\n"]


@fuzz_target(FACTS, everyday=100)
def amd_sysfs_files(data: bytes) -> None:
    """The lines of files in the sysfs of amdgpu and KFD."""
    path = scratch_file(data, "sys/file")
    number = amd_sysfs.number(path)
    assert number is None or 0 <= number < 1 << 64
    amd_sysfs.line(path)
    amd_sysfs.mode(path)
    amd_sysfs.modes(path)
    value = text(data)
    sysfs_gpu.unique_id(value)
    name = "sys/class/kfd/kfd/topology/nodes/1"
    for one in ("mem_banks/0/used_memory", "gpu_id", "properties"):
        scratch_file(data, f"{name}/{one}")
    assert all(used >= 0 for used in kfd_processes.node_used_bytes(str(scratch())).values())
    for one in ("vram_7", "queues/1/gpuid", "stats_7/cu_occupancy"):
        scratch_file(data, f"sys/class/kfd/kfd/proc/9/{one}")
    kfd_processes.kfd_uses(str(scratch()), [7])
