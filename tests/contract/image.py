# SPDX-License-Identifier: Apache-2.0
"""The image: the Dockerfile built as it is, on a Debian made with debootstrap, and its root kept.

No registry is asked for anything: the base is tagged with the name that the Dockerfile has. It is
the Debian of the packages' tests: a second one would cost most of a minute.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.contract.build_cache import CHECKOUT, built, cache
from tests.contract.debian_host import debian
from tests.contract.debs import mirror
from tests.contract.runtimes import run_command

BASE = "localhost/debian:bookworm-slim"
NAME = "localhost/gpuhook:test"
# What goes into the image; a change of other files, such as a chart or a test, builds nothing.
SOURCES = ("Dockerfile", ".dockerignore", "LICENSE", "pyproject.toml", "gpuhook")
OF_PACKAGING = ("bundle.py", "install.py", "gpuhook*", "image/**/*")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def root() -> Path:
    """Return the root file system of the image, built once for each state of its sources."""

    def build(place: Path) -> None:
        for old in cache().glob("image-*"):  # of another state of the sources: 120 MB each
            shutil.rmtree(old)
        base = debian()
        store = place / "store"
        try:
            _build(base, store, place / "root")
        finally:
            shutil.rmtree(store)

    return built("image", mirror() + _digest(), build) / "root"


def _build(base: Path, store: Path, into: Path) -> None:
    """Build the image in a separate store, and copy its root file system."""
    settings, shared = _pip()
    more = store / "more"
    (more / "etc").mkdir(parents=True)
    (more / "etc/pip.conf").write_text(settings, encoding="utf-8")
    if _CERTIFICATES.is_file():
        shutil.copyfile(_CERTIFICATES, more / "etc/machine.crt")
    made = _buildah(store, "from", "scratch")
    for part in (base, more):
        _buildah(store, "copy", "--quiet", made, str(part), "/")
    _buildah(store, "commit", "--quiet", made, BASE)
    _buildah(store, "rm", made)
    volumes = [f"--volume={path}:{path}:ro" for path in shared]
    options = ["--pull-never", "--isolation=chroot", "--layers=false", "--quiet", *volumes]
    _buildah(store, "bud", *options, "--tag", NAME, str(CHECKOUT))
    made = _buildah(store, "from", "--pull-never", NAME)
    mounted = _buildah(store, "mount", made)
    subprocess.run(["cp", "-a", mounted, str(into)], check=True)
    into.chmod(0o755)
    _buildah(store, "umount", made)


def _buildah(store: Path, command: str, *words: str) -> str:
    storage = ["--root", str(store / "root"), "--runroot", str(store / "run")]
    storage += ["--storage-driver", "vfs"]
    done = run_command(["buildah", *storage, command, *words])
    assert done.rc == 0, done.stderr[-4000:]
    return done.stdout.strip()


def _pip() -> tuple[str, list[str]]:
    """Return pip's settings of this machine for the base, and directories that they name."""
    parser = configparser.ConfigParser()
    parser.read(["/etc/pip.conf", Path.home() / ".config/pip/pip.conf"], encoding="utf-8")
    if not parser.has_section("global"):
        parser.add_section("global")
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            parser["global"][name[4:].lower().replace("_", "-")] = value
    words = " ".join(parser["global"].values()).split()
    found = {word.removeprefix("file://").partition("/simple")[0] for word in words}
    if parser["global"].get("cert"):
        parser["global"]["cert"] = "/etc/machine.crt"
    text = io.StringIO()
    parser.write(text)
    return text.getvalue(), sorted(p for p in found if p.startswith("/") and os.path.isdir(p))


def _digest() -> str:
    """Return what changes with the sources of the image, and with how it is built here."""
    total = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(_sources()):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(str(file.relative_to(CHECKOUT)).encode())
            total.update(file.read_bytes())
    return total.hexdigest()


def _sources() -> Iterator[Path]:
    for name in SOURCES:
        path = CHECKOUT / name
        yield from path.rglob("*") if path.is_dir() else [path]
    for pattern in OF_PACKAGING:
        yield from (CHECKOUT / "packaging").glob(pattern)
