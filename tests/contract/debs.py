# SPDX-License-Identifier: Apache-2.0
"""Debian packages of any suite, downloaded and unpacked without changes to the machine's apt.

The mirror is that of the machine's apt sources; the keys are Debian's archive keyring.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.contract.build_cache import built

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN = "http://deb.debian.org/debian"


def unpacked(suite: str, packages: list[str], into: Path, *options: str) -> None:
    """Unpack the named packages of `suite`, without dependencies, into the directory `into`.

    Links to existing directories (a merged /usr) remain; `options` are tar's.
    """
    into.mkdir(parents=True, exist_ok=True)
    for package in packages:
        (deb,) = _downloaded(suite, package).glob("*.deb")
        content = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(
            ["tar", "-C", str(into), "--keep-directory-symlink", *options, "-x"],
            input=content,
            check=True,
        )


def mirror(sources: Path = Path("/etc/apt")) -> str:
    """Return the base URL of Debian's main archive from the apt sources of this machine."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith(("deb ", "URIs:")):
                continue
            for url in re.findall(r"\S+://\S+", line):
                if "security" not in url and url.rstrip("/").endswith("/debian"):
                    return str(url).rstrip("/")
    return DEBIAN


def _downloaded(suite: str, package: str) -> Path:
    def build(place: Path) -> None:
        subprocess.run(
            ["apt-get", *_options(suite), "download", package],
            cwd=place,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    return built(f"deb-{suite}-{package}", mirror(), build)


def _options(suite: str) -> list[str]:
    """Return options that give apt-get a separate state with the lists of one suite."""

    def build(place: Path) -> None:
        for directory in ("lists/partial", "archives/partial", "empty"):
            (place / directory).mkdir(parents=True)
        (place / "sources.list").write_text(
            f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n", encoding="utf-8"
        )
        subprocess.run(["apt-get", *_state(place), "update"], check=True, stdout=subprocess.DEVNULL)

    return _state(built(f"apt-{suite}", mirror(), build))


def _state(place: Path) -> list[str]:
    settings = {
        "Dir::State": place,
        "Dir::State::status": "/dev/null",
        "Dir::Cache": place,
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": place / "empty",
        "Dir::Etc::preferencesparts": place / "empty",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "quiet": "2",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
