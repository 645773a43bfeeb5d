# SPDX-License-Identifier: Apache-2.0
"""The C parts of a simulated node, compiled once for each source text and set of options."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

_HERE = Path(__file__).resolve().parent


def cache_directory() -> Path:
    """Return the directory for what tests build once: $GPUHOOK_TEST_CACHE or build/test-cache."""
    named = os.environ.get("GPUHOOK_TEST_CACHE")
    path = Path(named) if named else _HERE.parents[1] / "build/test-cache"
    path.mkdir(parents=True, exist_ok=True)
    return path


def nvml_stub(*, old: bool = False, without: str = "") -> Path:
    """Return a built libnvidia-ml.so.1; `old`: one with the function names of ten years ago only.

    `without` leaves out newer parts by their names in C: "MIG", "PROFILE_NAMES", "DETAIL_LIST",
    "MEMORY_LIMITS".
    """
    options = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,-z,noexecstack"]
    options += ["-DNVML_STUB_OLD"] if old else []
    options += [f"-DNVML_STUB_NO_{without}"] if without else []
    return _compiled("nvml_stub.c", (*options, "-ldl"))


def faulty_nvml(stub: Path) -> Path:
    """Return a built libnvidia-ml.so.1 with a fault in a function of a stub: faulty_nvml.c."""
    options = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,-z,noexecstack"]
    listed = subprocess.check_output(["nm", "-D", "--defined-only", stub], text=True)
    names = sorted(line.split()[2] for line in listed.splitlines() if " T nvml" in line)
    macro = "".join(f"F({name})" for name in names)
    return _compiled("faulty_nvml.c", (*options, f"-DNAMES={macro}", "-ldl"))


def nvidia_smi() -> Path:
    """Return a built static program that replaces nvidia-smi."""
    return _compiled("nvidia_smi.c", ("-static", "-s"))


def smi_list(gpus: Sequence[Gpu]) -> Path:
    """Return a built program that replaces `nvidia-smi -L` on a node with these GPUs."""
    devices = [(f"/dev/nvidia{gpu.minor}", gpu.uuid) for gpu in gpus]
    devices += [
        (f"/dev/nvidia-caps/nvidia-cap{one.compute_instance_minor}", one.uuid)
        for gpu in gpus
        for one in gpu.instances
    ]
    table = ",".join(f'{{"{node}","{uuid}"}}' for node, uuid in devices)
    return _compiled("smi_list.c", (f"-DDEVICES={table}", "-ldl"))


def dmem_preload() -> Path:
    """Return the library that shows the controller dmem to a program."""
    return _compiled("dmem_preload.c", ("-shared", "-fPIC", "-ldl"))


def clock_jump() -> Path:
    """Return the library that gives a program another time of day."""
    return _compiled("clock_jump.c", ("-shared", "-fPIC"))


def gpu_probe() -> Path:
    """Return a built static program that uses a simulated GPU's memory: see gpu_probe.c."""
    return _compiled("gpu_probe.c", ("-static", "-s"))


def _compiled(source: str, options: tuple[str, ...]) -> Path:
    stem = source.partition(".")[0]
    text = b"".join(path.read_bytes() for path in sorted(_HERE.glob(f"{stem}*.[ch]")))
    key = hashlib.sha256(text + "\0".join(options).encode()).hexdigest()[:16]
    built = cache_directory() / f"{stem}-{key}"
    if built.exists():
        return built
    # Other test workers may compile too: each has its own file, and the last rename wins.
    with tempfile.TemporaryDirectory(dir=cache_directory()) as directory:
        output = Path(directory) / "output"
        command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(output)]
        subprocess.run([*command, str(_HERE / source), *options], check=True)
        output.rename(built)
    return built
