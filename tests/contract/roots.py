# SPDX-License-Identifier: Apache-2.0
"""Root file systems of the kinds that images have, built once from Debian's packages.

debian      a shell, coreutils, ldconfig, multiarch directories
lib64       as Red Hat's: everything in /usr/lib64, no multiarch, no files that identify Debian;
            glibc's loader was built for multiarch directories: only its cache has the paths
distroless  libc only: no shell, no ldconfig, no /etc/ld.so.conf
musl        busybox and musl's loader, as Alpine's

Each has /probe (static), and /dlprobe linked with its C library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.contract import compiled
from tests.contract.build_cache import built
from tests.contract.debs import mirror, unpacked
from tests.contract.runtimes import run_command

SUITE = "bookworm"
GLIBC = ["libc6", "libgcc-s1"]
SHELL = ["libc-bin", "dash", "coreutils", "libselinux1", "libpcre2-8-0", "libacl1", "libattr1"]
SHELL += ["libgmp10", "grep", "sed", "findutils"]
NAMES = ["base-files"]
WITHOUT_DOCS = ["--exclude=./usr/share/doc*", "--exclude=./usr/share/man*"]
WITHOUT_DOCS += ["--exclude=./usr/share/locale*"]
DIRECTORIES = ["dev", "etc", "proc", "sys", "run", "tmp", "var", "usr/bin", "usr/lib"]


def debian() -> Path:
    """Return Debian bookworm's minimum: shell, coreutils, ldconfig, merged /usr."""
    return _kept("debian", _debian)


def lib64() -> Path:
    """Return a root file system with Red Hat's directories."""
    return _kept("lib64", _lib64)


def distroless() -> Path:
    """Return a root file system that has libc and no program but the probes."""
    return _kept("distroless", _distroless)


def musl() -> Path:
    """Return a root file system of busybox and musl."""
    return _kept("musl", _musl)


# The fixture root_of: the kind of an image -> a fresh root file system.
Roots = Callable[[str], Path]

KINDS: dict[str, Callable[[], Path]] = {
    "debian": debian,
    "lib64": lib64,
    "distroless": distroless,
    "musl": musl,
}


def ldconfig() -> Path:
    """Return Debian's ldconfig, a static program, to be mounted into images without one."""
    return debian() / "usr/sbin/ldconfig"


def copy(kind: str, into: Path) -> Path:
    """Copy the root file system of this kind to `into`, for writing, and return that."""
    into.parent.mkdir(parents=True, exist_ok=True)
    source = KINDS[kind]()
    subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(into)], check=True)
    return into


def listing(root: Path) -> dict[str, tuple[object, ...]]:
    """Return each path below `root` with its mode, owner, size, link target and content.

    Two listings are equal if nothing was added, removed or changed.
    """
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        held = str(path.readlink()) if path.is_symlink() else ""
        content = path.read_bytes() if not path.is_symlink() and path.is_file() else b""
        facts = (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, held, content)
        found[str(path.relative_to(root))] = facts
    return found


def _kept(name: str, build: Callable[[Path], None]) -> Path:
    recipe = Path(__file__).read_text(encoding="utf-8") + mirror()
    recipe += "".join(p.read_text(encoding="utf-8") for p in sorted(compiled.PROGRAMS.glob("*.c")))

    def whole(root: Path) -> None:
        for directory in DIRECTORIES:
            (root / directory).mkdir(parents=True, exist_ok=True)
        build(root)
        shutil.copy(compiled.probe(), root / "probe")
        own = compiled.dlprobe_musl() if name == "musl" else compiled.dlprobe()
        shutil.copy(own, root / "dlprobe")

    return built(f"root-{name}", recipe, whole)


def _debian(root: Path) -> None:
    _merged(root)
    unpacked(SUITE, [*GLIBC, *SHELL, *NAMES], root, *WITHOUT_DOCS)
    _finished(root)
    (root / "etc/debian_version").write_text("12.11\n", encoding="utf-8")
    subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)


def _lib64(root: Path) -> None:
    _merged(root)
    moved = "--transform=flags=r;s,^[.]/(usr/)?lib/x86_64-linux-gnu,./usr/lib64,x"
    unpacked(
        SUITE, [*GLIBC, *SHELL], root, *WITHOUT_DOCS, "--exclude=./lib64", "--exclude=./etc", moved
    )
    shutil.rmtree(root / "usr/lib")
    (root / "usr/lib").mkdir()
    _finished(root)
    (root / "etc/ld.so.conf.d").mkdir()
    (root / "etc/ld.so.conf").write_text(
        "include ld.so.conf.d/*.conf\n/usr/lib64\n", encoding="utf-8"
    )
    (root / "etc/redhat-release").write_text(
        "Red Hat Enterprise Linux release 9.4 (Plow)\n", encoding="utf-8"
    )
    subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)


def _distroless(root: Path) -> None:
    unpacked(SUITE, GLIBC, root, *WITHOUT_DOCS, "--exclude=./etc/ld.so.conf.d")
    _accounts(root)


def _musl(root: Path) -> None:
    scratch = root / "tmp/scratch"
    unpacked(SUITE, ["musl", "busybox-static"], scratch)
    for directory in ("bin", "sbin", "lib", "usr/sbin", "usr/local/lib"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    shutil.copy(next(scratch.rglob("libc.so")), root / "lib/ld-musl-x86_64.so.1")
    (root / "lib/libc.musl-x86_64.so.1").symlink_to("ld-musl-x86_64.so.1")
    shutil.copy(scratch / "bin/busybox", root / "bin/busybox")
    shutil.rmtree(scratch)
    subprocess.run(["chroot", str(root), "/bin/busybox", "--install", "-s"], check=True)
    _accounts(root)
    (root / "etc/alpine-release").write_text("3.20.0\n", encoding="utf-8")


def with_ldconfig(root: Path) -> Path:
    """Add a static ldconfig at /ldconfig, which no mount hides."""
    shutil.copy(ldconfig(), root / "ldconfig")
    return root


def copy_programs(root: Path, *names: str) -> None:
    """Copy programs of this machine, and the libraries that they need, to the same paths."""
    for name in names:
        program = shutil.which(name)
        assert program
        needed = run_command(["ldd", program])
        for path in [program, *re.findall(r"(/\S+) \(0x", needed.stdout)]:
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), root / path[1:])


def _merged(root: Path) -> None:
    """Link /bin, /lib, ... to their directories below /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")


def _finished(root: Path) -> None:
    (root / "bin/sh").unlink(missing_ok=True)
    (root / "bin/sh").symlink_to("dash")
    _accounts(root)


def _accounts(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="utf-8")
    (root / "etc/group").write_text("root:x:0:\nvideo:x:44:\n", encoding="utf-8")
    (root / "tmp").chmod(0o1777)
