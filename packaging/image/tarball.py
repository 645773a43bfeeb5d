# SPDX-License-Identifier: Apache-2.0
"""Make the tarball: a runtime tree with programs that run it from any directory.

    python3 packaging/image/tarball.py [--machine aarch64] DIRECTORY

DIRECTORY gets gpuhook-VERSION-linux-MACHINE.tar.gz, and the same name with .sha256. It is made of
this Debian's Python, or of the packages of the same release for another machine, and of the
packages that pip downloads. All files have the time SOURCE_DATE_EPOCH, or that of the last commit.
Two builds of a commit with the same packages give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import sbom
import tree as runtime_tree
from debian import ARCHITECTURES, Debian, foreign

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PARTS = ("python", "lib", "launchers", "tools", "share", "tree.json")  # not what names a place
DOCUMENTS = ("LICENSE", "README.md", "CHANGELOG.md", "docs")
# Manual pages of the programs that `gpuhook node install` installs.
MANUAL = ("gpuhook-hook.1", "gpuhook-prestart.1", "gpuhook-runtime.1")
# The C libraries of wheels that the tree's C library can load.
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")


def build_tree(target: Path, machine: str, place: Path) -> None:
    """Build a runtime tree for a machine; `place` is an empty directory for downloads."""
    own = Debian()
    debian = own if machine == own.machine else foreign(machine, place)
    packages, runnable = place / "packages", place / "runnable"
    _install_packages(packages, debian)
    runtime_tree.build(packages, target, debian)
    sbom.write(target, packages, debian, _time())
    if not debian.is_own:
        _install_packages(runnable, own)
    _write_manual(target, packages if debian.is_own else runnable)


def _install_packages(packages: Path, debian: Debian) -> None:
    """Have pip install what gpuhook requires, for another machine only what needs no build."""
    pip = [os.environ.get("PIP_PYTHON", sys.executable), "-m", "pip", "--python", sys.executable]
    options = ["install", "--quiet", "--no-compile", "--target", str(packages)]
    if not debian.is_own:
        options += ["--only-binary=:all:", f"--python-version={platform.python_version()}"]
        options += [f"--platform={one}_{debian.machine}" for one in PLATFORMS]
    subprocess.run([*pip, *options, *runtime_tree.requirements()], check=True)


def _write_manual(tree: Path, packages: Path) -> None:
    """Write the manual pages and the completions, by packages that run here."""
    script = [sys.executable, "-SB", str(HERE.parent / "documents.py")]
    command = [*script, str(CHECKOUT), str(tree / "share")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(packages)})
    for name in MANUAL:
        shutil.copyfile(HERE.parent / "packages/manual" / name, tree / "share/man/man1" / name)


def write(tree: Path, directory: Path) -> Path:
    """Write the tarball of a tree; equal trees give equal bytes."""
    described = json.loads((tree / "tree.json").read_text(encoding="utf-8"))
    name = f"gpuhook-{described['version']}-linux-{described['architecture']}"
    path = directory / f"{name}.tar.gz"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
            program = _launcher(Path(place), described["architecture"])
            _add(archive, program, f"{name}/gpuhook")
            link = Path(place, "kubectl-gpuhook")
            link.symlink_to("gpuhook")
            _add(archive, link, f"{name}/kubectl-gpuhook")
            for part in PARTS:
                _add(archive, tree / part, f"{name}/{part}")
            for part in DOCUMENTS:
                _add(archive, CHECKOUT / part, f"{name}/{part}")
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=_time()) as packed:
        packed.write(data.getvalue())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.sha256").write_text(f"{digest}  {path.name}\n", encoding="utf-8")
    return path


def _launcher(place: Path, machine: str) -> Path:
    sys.path[:0] = [str(HERE.parent)]
    import static_program

    program = place / "gpuhook"
    static_program.build(str(HERE / "launcher.c"), str(program), machine)
    return program


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    if not os.path.lexists(path):
        return
    found = archive.gettarinfo(str(path), name)
    found.uid = found.gid = 0
    found.uname = found.gname = "root"
    found.mtime = _time()
    found.mode = 0o755 if found.isdir() or found.mode & 0o100 else 0o644
    if found.isreg():
        with path.open("rb") as file:
            archive.addfile(found, file)
        return
    archive.addfile(found)
    if found.isdir():
        for below in sorted(path.iterdir()):
            _add(archive, below, f"{name}/{below.name}")


def _time() -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit."""
    if not os.environ.get("SOURCE_DATE_EPOCH"):
        command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit("the time of this release is not known: set SOURCE_DATE_EPOCH, in seconds")
        os.environ["SOURCE_DATE_EPOCH"] = done.stdout.strip()
    return int(os.environ["SOURCE_DATE_EPOCH"])


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--machine", choices=ARCHITECTURES, default=platform.machine())
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        target = Path(place, "tree")
        build_tree(target, options.machine, Path(place, "downloads"))
        print(write(target, options.directory))


if __name__ == "__main__":
    main()
