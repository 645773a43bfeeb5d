# SPDX-License-Identifier: Apache-2.0
"""Packages and tarballs of this checkout, and packages of the release after it.

They are built as by `make deb`, `make tarball` and `make standalone`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.contract.build_cache import CHECKOUT
from tests.contract.build_cache import built as built_once

PARTS = ("gpuhook", "packaging", "CHANGELOG.md", "LICENSE", "pyproject.toml")
OWN = platform.machine()
KINDS = ["deb", "rpm"]
TIME = "1763769600"
UNMADE = shutil.ignore_patterns("__pycache__", "*.pyc")


@cache
def built(version: str = "") -> Path:
    """Return the directory with the packages of both kinds; those for Debian have another
    `version`.
    """

    def build(place: Path) -> None:
        checkout = CHECKOUT
        if version:
            checkout = copy_sources(place / "checkout")
            module = checkout / "gpuhook/__init__.py"
            text = re.sub(r'"[^"]+"$', f'"{version}"', module.read_text(), flags=re.MULTILINE)
            module.write_text(text)
        make(checkout, ["deb"] if version else KINDS, place)
        shutil.rmtree(place / "checkout", ignore_errors=True)

    return built_once(f"packages{version}", f"{sys.version} {_digest()}", build)


@cache
def tarball(machine: str = OWN) -> Path:
    """Return the tarball for a machine."""

    def build(place: Path) -> None:
        make_tarball(CHECKOUT, place, machine)

    (found,) = built_once(f"tarball-{machine}", _digest(), build).glob("*.tar.gz")
    return found


@cache
def standalone(machine: str = OWN) -> Path:
    """Return the directory with the standalone packages of both kinds for a machine."""

    def build(place: Path) -> None:
        make(CHECKOUT, [*KINDS, "--tarball", str(tarball(machine))], place)

    return built_once(f"standalone-{machine}", f"{sys.version} {_digest()}", build)


def make_tarball(
    checkout: Path, output: Path, machine: str = OWN, env: Mapping[str, str] | None = None
) -> None:
    """Build the tarball of a checkout in the directory `output`, by the system's Python."""
    command = ["/usr/bin/python3", str(checkout / "packaging/image/tarball.py"), str(output)]
    _run([*command, "--machine", machine], {"PIP_PYTHON": sys.executable}, env)


def make(
    checkout: Path, kinds: list[str], output: Path, env: Mapping[str, str] | None = None
) -> None:
    """Build the packages of a checkout in the directory `output`."""
    command = [sys.executable, "-m", "packages", *kinds, "--output", str(output)]
    _run(command, {"PYTHONPATH": str(checkout / "packaging")}, env)


def _run(command: list[str], own: Mapping[str, str], env: Mapping[str, str] | None) -> None:
    """Run a build; one with a particular environment also has another umask."""
    done = subprocess.run(
        command,
        env={**os.environ, "SOURCE_DATE_EPOCH": TIME, **own, **(env or {})},
        umask=0o077 if env else 0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def copy_sources(place: Path) -> Path:
    """Copy the sources of the packages to `place`, and return that."""
    place.mkdir(parents=True)
    for part in PARTS:
        source = CHECKOUT / part
        if source.is_dir():
            shutil.copytree(source, place / part, symlinks=True, ignore=UNMADE)
        else:
            shutil.copy(source, place / part)
    return place


def _digest() -> str:
    found = hashlib.sha256(Path(__file__).read_bytes())
    for part in PARTS:
        source = CHECKOUT / part
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and path.suffix != ".pyc":
                found.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return found.hexdigest()
