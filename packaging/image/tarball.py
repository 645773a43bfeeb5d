# SPDX-License-Identifier: Apache-2.0
"""Make the tarball: a runtime tree with a program that runs it from any directory.

    python3 packaging/image/tarball.py [--tree TREE] DIRECTORY

DIRECTORY gets gpuhook-VERSION-linux-MACHINE.tar.gz, and the same name with .sha256. TREE is a
runtime tree; without it, one is built of this Debian's Python and of packages that pip downloads.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PARTS = ("python", "lib", "launchers", "tools", "share", "tree.json")  # not what names a place
DOCUMENTS = ("LICENSE", "README.md", "CHANGELOG.md", "docs")


def build_tree(target: Path) -> None:
    """Build a runtime tree of this machine's Python."""
    sys.path[:0] = [str(HERE)]
    import tree

    with tempfile.TemporaryDirectory() as packages:
        pip = [
            os.environ.get("PIP_PYTHON", sys.executable),
            "-m",
            "pip",
            "--python",
            sys.executable,
        ]
        options = ["install", "--quiet", "--no-compile", "--target", packages]
        subprocess.run([*pip, *options, *tree.requirements()], check=True)
        tree.build(Path(packages), target)
        sbom = [sys.executable, str(HERE / "sbom.py"), "--packages", packages, str(target)]
        subprocess.run(sbom, check=True)


def write(tree: Path, directory: Path) -> Path:
    """Write the tarball of a tree; equal trees give equal bytes."""
    described = json.loads((tree / "tree.json").read_text(encoding="utf-8"))
    name = f"gpuhook-{described['version']}-linux-{described['architecture']}"
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or _commit_time())
    path = directory / f"{name}.tar.gz"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        program = _launcher(Path(place))
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
            _add(archive, program, f"{name}/gpuhook", when)
            for part in PARTS:
                _add(archive, tree / part, f"{name}/{part}", when)
            for part in DOCUMENTS:
                _add(archive, CHECKOUT / part, f"{name}/{part}", when)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=when) as packed:
        packed.write(data.getvalue())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.sha256").write_text(f"{digest}  {path.name}\n", encoding="utf-8")
    return path


def _launcher(place: Path) -> Path:
    compiler = shutil.which("musl-gcc") or "gcc"
    program = place / "gpuhook"
    command = [compiler, "-static", "-Os", "-s", "-Wall", "-Werror", "-o", str(program)]
    subprocess.run([*command, str(HERE / "launcher.c")], check=True)
    return program


def _add(archive: tarfile.TarFile, path: Path, name: str, when: int) -> None:
    if not path.exists():
        return
    found = archive.gettarinfo(str(path), name)
    found.uid = found.gid = 0
    found.uname = found.gname = "root"
    found.mtime = when
    found.mode = 0o755 if found.isdir() or found.mode & 0o100 else 0o644
    if found.isreg():
        with path.open("rb") as file:
            archive.addfile(found, file)
        return
    archive.addfile(found)
    if found.isdir():
        for below in sorted(path.iterdir()):
            _add(archive, below, f"{name}/{below.name}", when)


def _commit_time() -> str:
    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "0"


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tree", type=Path, help="an existing runtime tree")
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    if options.tree:
        print(write(options.tree, options.directory))
        return
    with tempfile.TemporaryDirectory() as place:
        built = Path(place) / "tree"
        build_tree(built)
        print(write(built, options.directory))


if __name__ == "__main__":
    main()
