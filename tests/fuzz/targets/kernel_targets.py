# SPDX-License-Identifier: Apache-2.0
"""Files of /proc and /sys, which a bundle, lxcfs or another kernel may have in other forms."""

from __future__ import annotations

import os

from gpuhook.device_plugin.guard import container_processes
from gpuhook.device_plugin.metrics import cgroup_names
from gpuhook.host.hot import procfs
from gpuhook.kernel import cgroup, dmem, inotify, mountinfo
from gpuhook.kernel.bpf import device_filter, instructions
from gpuhook.node import daemons
from gpuhook.vendors.amd.doctor import amd_facts
from gpuhook.vendors.amd.usage import drm_clients
from gpuhook.vendors.nvidia.devices import driver_nodes, mig_profile
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities
from gpuhook.vendors.nvidia.modes.tegra import csv_files
from tests.fuzz.fuzz_target import fuzz_target, scratch, scratch_file, text

ID = "ab" * 32
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
31 30 0:27 /a/b /sys/fs/cgroup/devices rw master:2 - cgroup cgroup rw,devices
40 22 0:6 /null /run/x\\040y\\134//deleted rw - devtmpfs udev rw
"""
CGROUP = f"0::/kubepods.slice/pod-1/cri-containerd-{ID}.scope\n"
CGROUPS = f"12:devices:/docker/{ID}\n4:cpu,cpuacct:/a:b\n0::/user.slice/user@1000.service/x\n"
STAT = "1 (a b) c) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 12345 1 1\n"


@fuzz_target([MOUNTS, MOUNTS.splitlines()[0]], everyday=200)
def mountinfo_file(data: bytes) -> None:
    mounts = mountinfo.parse(data)
    for mount in mounts:
        found = mountinfo.find(data, mount.id)
        assert found is None or found.id == mount.id  # the first of them may be malformed
        assert mount.is_remote in (True, False)
        mount.is_over("/etc/passwd")
    cgroup.hierarchy(data)


@fuzz_target([b"/etc", b"/a b\\c\nd\te", b"/x//deleted", b"\xff\xfe", b"/\xe2\x80\xa8 - ext4"])
def mountinfo_path(data: bytes) -> None:
    """A path of any bytes, written as the kernel does, is one mount, and the path is read."""
    path = b"/" + data.replace(b"\0", b"")
    written = path
    for letter in (b"\\", b" ", b"\t", b"\n"):
        written = written.replace(letter, b"\\%03o" % ord(letter))
    line = b"40 22 0:6 /r " + written + b" rw shared:1 - ext4 /dev/sda1 rw"
    (found,) = mountinfo.parse(line + b"\n")
    assert os.fsencode(found.target) == path
    assert (found.root, found.shared, found.fstype) == ("/r", "1", "ext4")


@fuzz_target([CGROUP, CGROUPS, "0::/\n", "1:name=systemd:/x/../y\n"], everyday=200)
def cgroup_file(data: bytes) -> None:
    """A cgroup is below its mount, and a container's id is one of the names."""
    member = cgroup_names.parse(data)
    container = member.container(())
    assert container is None or container in member.names
    member.outermost((ID,))
    container_processes.scope_cgroups(data)
    cgroup.name_of(data)
    for recorded in (None, "", "/a/b", f"/docker/{ID}"):
        found = cgroup.DeviceCgroup.parse(data, recorded, MOUNTS.encode())
        if found is not None:
            assert found.path == found.top or found.path.startswith(found.top + "/")
            assert ".." not in found.path.split("/")
            assert found.upwards()[-1] == found.top


@fuzz_target([STAT, STAT.replace(" S ", " Z ")])
def process_stat(data: bytes) -> None:
    """Everything up to the last bracket is the name of a command."""
    name = data.replace(b"\n", b"").rpartition(b")")[0]
    fields = procfs.stat_fields(b"1 (" + name + STAT.encode().partition(b"c")[2])
    assert fields[0] == b"S"
    proc = scratch()
    scratch_file(data, "7/stat")
    procfs.start_time(7, str(proc))
    procfs.parent(7, str(proc))
    list(procfs.parents(7, str(proc)))


@fuzz_target(["drm/0000:06:00.0/vram 1024\nx max\n", "cpu dmem\n", "populated 1\nfrozen 0\n"])
def cgroup_control_files(data: bytes) -> None:
    place = str(scratch() / "cgroup")
    for name in (dmem.CAPACITY, dmem.CONTROLLERS, dmem.PASSED_ON, dmem.MAX):
        scratch_file(data, f"cgroup/{name}")
    assert all(value >= 0 for value in (dmem.capacity(place) or {}).values())
    dmem.has_controller(place)
    dmem.passes_on(place)
    dmem.first_gap(place)
    scratch_file(data, "cgroup/cgroup.events")
    cgroup.is_populated(place)


@fuzz_target([b"\x01\0\0\0\0\x01\0\0\0\0\0\0\x10\0\0\0name" + bytes(12)], allowed=())
def inotify_events(data: bytes) -> None:
    """The kernel writes whole events: the head and the name are as long as it says."""
    name = data[:240].ljust(16, b"\0")
    head = b"\x01\0\0\0\0\x01\0\0\0\0\0\0" + len(name).to_bytes(4, "little")
    events = inotify.decode(head + name)
    assert len(events) == 1


@fuzz_target(["c 195:0 rw", "a *:* rwm", "b 8:* m"], allowed=(ValueError,), everyday=200)
def device_rule(data: bytes) -> None:
    """A rule that was read is written in the same form."""
    rule = device_filter.Rule.of_line(text(data))
    again = device_filter.Rule.of_line(rule.line) if rule.access else rule
    assert again == rule


def programs() -> list[bytes]:
    rules = [device_filter.Rule(True, "c", 1, 3), device_filter.Rule(False, "a", None, None)]
    return [device_filter.ALLOW_ALL, device_filter.program(rules, default=False)]


@fuzz_target(programs, allowed=(instructions.UnknownCodeError,), everyday=200)
def device_program(data: bytes) -> None:
    """A program of any instructions has a result, or is refused."""
    code = data[: len(data) // 8 * 8]
    assert 0 <= instructions.result(code, bytes(12)) < 1 << 32
    instructions.is_portable(code)


MINORS = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
DEVICES = (
    "Character devices:\n195 nvidia\n195 nvidia-modeset\n508 nvidia-uvm\nBlock devices:\n8 sd\n"
)
CAPABILITY = "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


@fuzz_target([MINORS, DEVICES, CAPABILITY], everyday=200)
def nvidia_proc_files(data: bytes) -> None:
    found = data.decode("utf-8", "replace")
    assert all(0 <= minor < 1 << 20 for minor in mig_capabilities.parse_minors(found).values())
    assert all(0 <= major < 1 << 12 for major in mig_capabilities.parse_majors(found).values())
    capability = mig_capabilities.parse_file(found)
    assert capability is None or 0 <= capability.minor < 1 << 20
    state = host_fingerprint.mig_of(data, [])
    assert state == host_fingerprint.mig_of(data, [])
    host_fingerprint.majors(data)


INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 120
GPU UUID: \t GPU-5c9a1f7e-0000-4000-8000-000000000000
Bus Location: \t 0000:1b:00.0
Device Minor: \t 0
"""


@fuzz_target([INFORMATION, "Device Minor: -1\n", "1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me"])
def nvidia_gpu_information(data: bytes) -> None:
    found = data.decode("utf-8", "replace")
    gpu = driver_nodes.parse_gpu("0000:1b:00.0", found.splitlines())
    assert gpu.minor is None or 0 <= gpu.minor < 1 << 20
    assert gpu.uuid is None or gpu.uuid.isprintable()
    mig_profile.parsed(found)
    host_fingerprint.release_in(found)


@fuzz_target(
    ["dev, /dev/nvhost-ctrl\nlib, /usr/lib/libcuda.so\nsym, libx.so\ndir, /lib/firmware\n"]
)
def tegra_csv(data: bytes) -> None:
    lines, wrong = csv_files.parse(data, "l4t.csv")
    assert len(set(lines)) == len(lines)
    assert len(wrong) <= 10
    for line in lines:
        assert line.path.isprintable()
        assert not csv_files.misplaced(line.kind, line.path)


FDINFO = """\
pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-client-id:\t43
drm-pdev:\t0000:63:00.0
drm-memory-vram:\t1024 KiB
drm-resident-vram:\t2 MiB
"""


@fuzz_target([FDINFO, FDINFO.replace("2 MiB", "-1 TiB")])
def drm_fdinfo(data: bytes) -> None:
    scratch_file(data, "proc/7/fdinfo/3")
    link = scratch() / "proc/7/fd/3"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("/dev/dri/renderD128")
    found = drm_clients.drm_clients(str(scratch() / "proc"))
    for client in found.clients:
        assert client.vram_bytes is None or client.vram_bytes >= 0


KFD = (
    "cpu_cores_count 0\nsimd_count 304\ngfx_target_version 90402\nunique_id 18446744073709551615\n"
)


@fuzz_target([KFD, "drm_render_minor 128\nlocation_id 1234\ndomain 0\nhive_id 0\n"])
def kfd_properties(data: bytes) -> None:
    assert all(value >= 0 for value in amd_facts.numbers(data.decode("utf-8", "replace")).values())


SHOWN = "Id=containerd.service\nLoadState=loaded\nExecStart={ path=/x ; argv[]=/x --a }\n\nId=b\n"


@fuzz_target([SHOWN])
def systemctl_show(data: bytes) -> None:
    daemons.parsed(data.decode("utf-8", "replace"))
