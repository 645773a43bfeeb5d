# SPDX-License-Identifier: Apache-2.0
"""gpuhook's image: the Dockerfile, built on a Debian of debootstrap, and its root file system.

No registry is needed: the base image is tagged with the Dockerfile's name. It is the Debian of the
package tests, since a second one takes most of a minute.
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
# Sources of the image; a change of other files, such as a chart or a test, builds no image.
SOURCES = ("Dockerfile", ".dockerignore", "LICENSE", "pyproject.toml", "gpuhook")
OF_PACKAGING = ("bundle.py", "install.py", "gpuhook*", "image/**/*")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def root() -> Path:
    """Return the root file system of the image, built once for each state of its sources."""

    def build(place: Path) -> None:
        for old in cache().glob("image-*"):  # images of other sources: 120 MB each
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
    """Return pip's settings of this machine for the base image, and the directories in them."""
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
    """Return a digest of the image's sources and of this module."""
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
