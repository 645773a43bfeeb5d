# SPDX-License-Identifier: Apache-2.0
"""Build the runtime tree: gpuhook with its own Python, loader, libraries and shell.

    python3 packaging/image/tree.py requirements
    python3 packaging/image/tree.py build --packages DIR TARGET

The first prints what pip has to install into DIR. The second makes TARGET out of DIR, of this
checkout and of the Debian that it runs on; tarball.py makes one for another architecture. The tree
runs wherever its kernel does: in the image, and on hosts that have no Python, no C library and no
shell. Only launchers name where it is; gpuhook/install/runtime_tree.py fills that in.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from debian import Debian

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
SCHEMA = "gpuhook/tree/v1"
# Programs for the launchers, and for a shell in a container of the image.
TOOLS = "sh cat grep ls ps sleep env test readlink mount umount kill id true tail wget"
# Only the device plugin needs these: they are not in a host's tree.
OF_THE_PLUGIN = ("grpcio", "protobuf")
# Unused parts of Python's library: tests, user interfaces, build tools.
LEFT_OUT = (
    "test", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "venv",
    "distutils", "turtle.py", "sitecustomize.py", "__pycache__", "config-*", "LICENSE.txt",
    "EXTERNALLY-MANAGED",
    "_tkinter*", "readline.*", "_curses*", "_dbm.*", "_gdbm.*", "nis.*", "audioop.*", "_test*",
    "_xxtestfuzz*", "_ctypes_test*", "xxlimited*",
)  # fmt: skip
# The driver's libraries open some of these by name.
ALWAYS = (
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
    "libgcc_s.so.1",
)  # fmt: skip
RUNTIME = "bin/gpuhook-runtime"
LAUNCH = "tools/gpuhook-launch"
OWN_PYTHON = (
    '"@TREE@/python/lib/ld.so" --inhibit-cache --library-path "@TREE@/python/lib"'
    ' "@TREE@/python/bin/python3"'
)


def requirements() -> list[str]:
    """Return the requirements of gpuhook and its device plugin in pyproject.toml."""
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["plugin"]]


def build(packages: Path, target: Path, debian: Debian | None = None) -> None:
    """Build the new tree `target` with the packages that pip installed into `packages`.

    Its other files are those of a Debian, by default of this machine's.
    """
    sys.path[:0] = [str(CHECKOUT), str(HERE.parent)]  # gpuhook, and what installs it
    os.umask(0o022)  # modes are part of the digest
    debian = debian or Debian()
    target.mkdir(parents=True)
    home, library = target / "python", debian.library
    (home / "bin").mkdir(parents=True)
    shutil.copy2(debian.python, home / "bin/python3")
    shutil.copytree(library, home / "lib" / library.name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    _split(packages, target / "lib/packages", target / "lib/plugin")
    _copy_libraries(target, debian)
    _copy_tools(target / "tools", debian.busybox)
    _copy_gpuhook(target, debian.machine)
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    for part in ("python/lib", "lib/packages", "lib/plugin"):
        place = str(target / part)
        command = [sys.executable, "-IS", *compiled, "-s", place, "-p", part, place]
        subprocess.run(command, check=True)
    _describe(target, debian.machine)


def _split(packages: Path, common: Path, plugin: Path) -> None:
    """Copy the installed packages: those of the plugin, and the rest."""
    only = {_normal(name) for name in OF_THE_PLUGIN}
    for found in importlib.metadata.distributions(path=[str(packages)]):
        into = plugin if _normal(found.metadata["Name"]) in only else common
        for file in found.files or ():
            if ".." in file.parts or "__pycache__" in file.parts or file.parts[0] == "bin":
                continue
            if file.name == "RECORD":
                continue  # pip's list has the checksums of programs that name a temporary directory
            place = into / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(packages / file, place)  # some wheels have texts that are executable


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy_libraries(target: Path, debian: Debian) -> None:
    """Copy the loader and every shared library that the tree's programs need."""
    from gpuhook.loader import elf

    programs = [debian.python, *target.rglob("*.so"), *target.rglob("*.so.*")]
    into, bundled = target / "python/lib", {path.name for path in programs}
    found: dict[str, Path] = {}
    waiting, names = [*programs], [*ALWAYS]
    while waiting or names:
        for name in names:
            if name not in found and name not in bundled:
                found[name] = debian.shared_library(name)
                waiting.append(found[name])
        read = elf.read(str(waiting.pop())) if waiting else None
        names = read.needed if read else []
    for name, path in found.items():
        # Libraries need the loader under its own name, too.
        shutil.copy2(path.resolve(), into / name)
    (loader,) = (name for name in found if name.startswith("ld-linux"))
    shutil.copy2(into / loader, into / "ld.so")


def _copy_tools(tools: Path, busybox: Path) -> None:
    from gpuhook.loader import elf

    tools.mkdir()
    if not elf.is_static(str(busybox)):
        sys.exit(f"{busybox} needs libraries: install busybox-static")
    shutil.copy2(busybox, tools / "busybox")
    for name in TOOLS.split():
        (tools / name).symlink_to("busybox")


def _copy_gpuhook(target: Path, machine: str) -> None:
    """Copy the package with its byte code, and the launchers with their @WORDS@."""
    import static_program
    from install import build_library, version

    static_program.build(static_program.LAUNCH, str(target / LAUNCH), machine)
    build_library(str(target / "lib/gpuhook"), "lib/gpuhook", sys.executable)
    launchers = target / "launchers"
    launchers.mkdir()
    for name, source in {
        RUNTIME: HERE.parent / "gpuhook-runtime.sh",
        "bin/gpuhook-hook": HERE.parent / "gpuhook-hook.py",
        "bin/gpuhook-prestart": HERE.parent / "gpuhook-prestart.sh",
        "bin/gpuhook": HERE / "launchers/gpuhook",
        "bin/kubectl-gpuhook": HERE / "launchers/kubectl-gpuhook",
        "libexec/python3": HERE / "launchers/python3",
        "libexec/nvidia-device-plugin": HERE / "launchers/nvidia-device-plugin",
        "libexec/config-manager": HERE / "launchers/config-manager",
    }.items():
        text = source.read_text(encoding="utf-8")
        shell = LAUNCH if name == RUNTIME else "tools/sh"
        text = text.replace("#!/bin/sh\n", f"#!@TREE@/{shell}\n", 1)
        # Saves time at each create, and avoids the host's loader cache.
        text = text.replace('"@PYTHON@" -IS', f"{OWN_PYTHON} -IS") if name == RUNTIME else text
        text = text.replace("PATH=$PATH:/usr/bin:/bin", "PATH=$PATH:/usr/bin:/bin:@TREE@/tools")
        text = text.replace("@VERSION@", version())
        (launchers / name).parent.mkdir(exist_ok=True)
        (launchers / name).write_text(text.replace("@PYTHON@", "@TREE@/libexec/python3"), "utf-8")


def _describe(target: Path, machine: str) -> None:
    """Write tree.json: the kind of the tree, and a digest of its content."""
    from install import version

    document = {
        "schema": SCHEMA,
        "version": version(),
        "python": platform.python_version(),
        "architecture": machine,
        "digest": digest(target),
    }
    (target / "tree.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def digest(target: Path) -> str:
    """Return the SHA-256 of the names, modes and contents of all files of a tree."""
    total = hashlib.sha256()
    for path in sorted(target.rglob("*")):
        if path.is_symlink():
            content = os.readlink(path).encode()
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).digest()
        else:
            continue
        total.update(f"{path.relative_to(target)}\0{path.lstat().st_mode:o}\0".encode())
        total.update(content)
    return total.hexdigest()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("requirements", help="print what pip has to install")
    making = commands.add_parser("build", help="make the tree")
    making.add_argument("--packages", type=Path, required=True, help="what pip has installed")
    making.add_argument("target", type=Path)
    options = parser.parse_args()
    if options.command == "requirements":
        print("\n".join(requirements()))
    else:
        build(options.packages, options.target)


if __name__ == "__main__":
    main()
