# SPDX-License-Identifier: Apache-2.0
"""The processes that use AMD GPUs, in the files of a simulated node: KFD's, and those of /proc.

    host_processes(root)
    compute(root, 4711, {13261: 3 << 30}, occupied={13261: 38})
    client(root, 4711, "7", minor=128, vram=3 << 30)

The files have the form of the kernel's (drivers/gpu/drm/amd/amdkfd/kfd_process.c, amdgpu_fdinfo.c).
"""

from __future__ import annotations

import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KFD_PROCESSES = "sys/class/kfd/kfd/proc"


def host_processes(root: Path) -> Path:
    """Make the /proc of `root` that of a host, and return it."""
    proc = root / "proc"
    write(proc / "2/comm", "kthreadd\n")
    (proc / "2/fd").mkdir(exist_ok=True)
    return proc


def compute(
    root: Path,
    pid: int,
    vram: Mapping[int, int | str],
    occupied: Mapping[int, int] | None = None,
    context: str = "",
) -> Path:
    """Add a process to KFD: bytes by gpu_id, and occupied compute units of its queues.

    Returns its directory.
    """
    place = root / KFD_PROCESSES / str(pid) / context
    for kfd_id, amount in vram.items():
        write(place / f"vram_{kfd_id}", f"{amount}\n")
    for number, (kfd_id, units) in enumerate((occupied or {}).items()):
        write(place / f"queues/{number}/gpuid", f"{kfd_id}\n")
        write(place / f"stats_{kfd_id}/cu_occupancy", f"{units}\n")
    return place


def runs(root: Path, pid: int, state: str = "S") -> None:
    """Add a process without open files to /proc."""
    fields = f"{state} 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0"
    write(root / f"proc/{pid}/stat", f"{pid} (a) b) {fields}\n")
    (root / f"proc/{pid}/fd").mkdir(exist_ok=True)


def client(
    root: Path,
    pid: int,
    identity: str,
    *,
    minor: int,
    vram: int | None,
    address: str = "0000:05:00.0",
    descriptor: int = 5,
    driver: str = "amdgpu",
    key: str = "drm-resident-vram",
    node: str = "",
) -> None:
    """Add an open device node to a process, with the fdinfo of a DRM client."""
    runs(root, pid)
    proc = root / f"proc/{pid}"
    (proc / f"fd/{descriptor}").symlink_to(node or f"/dev/dri/renderD{minor}")
    memory = "" if vram is None else f"{key}:\t{vram >> 10} KiB\n"
    write(
        proc / f"fdinfo/{descriptor}",
        f"pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t505\ndrm-driver:\t{driver}\n"
        f"drm-client-id:\t{identity}\ndrm-pdev:\t{address}\npasid:\t32771\n{memory}"
        "drm-memory-gtt: \t2048 KiB\ndrm-engine-compute:\t0 ns\n",
    )


def ended(root: Path, pid: int) -> None:
    """Remove a process from /proc; KFD still has it."""
    shutil.rmtree(root / f"proc/{pid}")


def write(path: Path, text: str) -> None:
    """Write a file, and make its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
