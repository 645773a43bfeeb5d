# SPDX-License-Identifier: Apache-2.0
"""All that the record knows of the package and of its installation; change it here."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click

import gpuhook
from tests.simulated import build

CHECKOUT = Path(__file__).parents[2]
PREFIX = "/mnt/prefix"
VERSION = gpuhook.__version__
PYTHON = "/usr/bin/python3"


def command() -> click.Group:
    """Return the command line as a click command."""
    from gpuhook.cli import main

    return main


def tree_schema() -> str:
    """Return the schema of a runtime tree, which `gpuhook install` copies."""
    from gpuhook.install import runtime_tree

    return runtime_tree.SCHEMA


def load(names: Iterable[str] = ()) -> None:
    """Import every command and these modules, so that a command starts at once."""
    group = command()
    context = click.Context(group)
    for name in group.list_commands(context):
        group.get_command(context, name)
    for name in names:
        importlib.import_module(name)


def loaded() -> list[str]:
    """Return the names of the package's modules that are imported."""
    return [name for name in sys.modules if name.startswith("gpuhook.")]


def installed() -> Path:
    """Return a directory with an installation for PREFIX, made once per version of it.

    It also builds the programs of simulated nodes: cases cannot write outside of /mnt.
    """
    build.nvidia_smi()
    build.nvml_stub()
    # Checkouts share the directory: each has its own installation.
    checkout = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]
    place = build.cache_directory() / f"record-installation-{checkout}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = place / "stamp"
        version = _version()
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != version:
            shutil.rmtree(place, ignore_errors=True)
            install(place)
            stamp.write_text(version, encoding="utf-8")
    return Path(f"{place}{PREFIX}")


def install(destdir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Install below `destdir`."""
    words = [sys.executable, str(CHECKOUT / "packaging/install.py"), "--prefix", PREFIX]
    words += ["--destdir", str(destdir), "--python", PYTHON, "--cli-python", sys.executable]
    return subprocess.run([*words, *options], check=True, capture_output=True, text=True)


def _version() -> str:
    """Return a hash of all installed files."""
    digest = hashlib.sha256(sys.executable.encode())
    for directory in ("gpuhook", "packaging"):
        for path in sorted((CHECKOUT / directory).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path}\0{path.stat().st_mode}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
