# SPDX-License-Identifier: Apache-2.0
"""The C programs of the tests, compiled once, such as the probes that run in a container."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.contract.build_cache import built

PROGRAMS = Path(__file__).parent / "programs"
WARNINGS = ["-O2", "-Wall", "-Wextra", "-Werror"]


def probe() -> Path:
    """Return the static program that prints what a container sees (programs/probe.c)."""
    return _compiled("probe", "probe.c", ["gcc", "-static"])


def dlprobe() -> Path:
    """Return the glibc program that calls the dynamic loader (programs/dlprobe.c)."""
    return _compiled("dlprobe", "dlprobe.c", ["gcc"])


def dlprobe_musl() -> Path:
    """Return dlprobe linked with musl; it needs /lib/ld-musl-x86_64.so.1."""
    return _compiled("dlprobe-musl", "dlprobe.c", ["musl-gcc"])


def swaproot() -> Path:
    """Return the static program that changes its root directory repeatedly (swaproot.c)."""
    return _compiled("swaproot", "swaproot.c", ["gcc", "-static"])


def swapper() -> Path:
    """Return the static program that exchanges, mounts and remakes files (programs/swapper.c)."""
    return _compiled("swapper", "swapper.c", ["gcc", "-static", "-pthread"])


def memlock() -> Path:
    """Return the preloaded library that lets crun load a device program (programs/memlock.c)."""
    return _compiled("memlock.so", "memlock.c", ["gcc", "-shared", "-fPIC"])


def interposer() -> Path:
    """Return the library that intercepts dlopen (programs/interposer.c)."""
    return _compiled("interposer.so", "interposer.c", ["gcc", "-shared", "-fPIC"])


def require() -> Path:
    """Return the program that evaluates NVIDIA_REQUIRE_* (programs/require.c)."""
    return _compiled("require", "require.c", ["gcc"])


def _compiled(name: str, source: str, compiler: list[str]) -> Path:
    command = [*compiler, *WARNINGS, str(PROGRAMS / source), "-o"]

    def build(place: Path) -> None:
        subprocess.run([*command, str(place / name)], check=True)

    recipe = " ".join(compiler + WARNINGS) + (PROGRAMS / source).read_text(encoding="utf-8")
    return built(name, recipe, build) / name
