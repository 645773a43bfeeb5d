# SPDX-License-Identifier: Apache-2.0
"""The Debian that a runtime tree is made of: this machine's, or one of another architecture.

The packages of another architecture are downloaded and unpacked, and none of them runs. They are of
this machine's release, by whose Python their byte code is made.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Debian's names of machines
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What a tree takes files of; apt adds what they depend on.
PACKAGES = ("python3", "busybox-static", "libgcc-s1", "libstdc++6")


@dataclass(frozen=True)
class Debian:
    """A Debian below `root`. `owners` has name and version of the package of each file.

    It is empty for this machine's own, which dpkg knows.
    """

    machine: str = platform.machine()
    root: Path = Path("/")
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether it is this machine's, whose programs run here."""
        return self.root == Path("/")

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.root / str(Path(sys.executable).resolve()).lstrip("/")

    @property
    def library(self) -> Path:
        """The directory of Python's standard library."""
        return self.root / sysconfig.get_path("stdlib").lstrip("/")

    @property
    def busybox(self) -> Path:
        """The static busybox."""
        return self.root / "bin/busybox"

    def shared_library(self, name: str) -> Path:
        """Return the path of a shared library; exit if it is missing."""
        for directory in ("usr/lib", "lib"):
            path = self.root / directory / f"{self.machine}-linux-gnu" / name
            if path.exists():
                return path
        sys.exit(f"{self.root} has no {name} for {self.machine}")

    def packages(self, paths: Iterable[Path]) -> dict[str, str]:
        """Return the versions of the packages that have these files."""
        # The path in the package's list of files: with or without /usr, or behind a link.
        known = {one for path in paths for one in (path, path.resolve())}
        names = {f"/{path.relative_to(self.root)}" for path in known}
        names |= {name.removeprefix("/usr") for name in names}
        if not self.is_own:
            return dict(self.owners[name] for name in sorted(names) if name in self.owners)
        # Its status is 1 for the paths that no package has.
        search = ["dpkg-query", "--search", *sorted(names)]
        owners = subprocess.run(search, check=False, capture_output=True, text=True).stdout
        found = {line.partition(": ")[0].partition(":")[0] for line in owners.splitlines()}
        form = "--showformat=${Package} ${Version}\n"
        pairs = _output("dpkg-query", "--show", form, *sorted(found))
        return dict(line.split() for line in pairs.splitlines())


def foreign(machine: str, place: Path) -> Debian:
    """Download the packages of another architecture, and unpack them below `place`."""
    root, owners = place / "root", {}
    for deb in _downloaded(ARCHITECTURES[machine], place / "apt"):
        root.mkdir(exist_ok=True)
        name, version = _output(
            "dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(deb)
        ).split()
        for line in _output("dpkg-deb", "--vextract", str(deb), str(root)).splitlines():
            owners[line.strip().removeprefix(".")] = (name, version)
    found = Debian(machine, root, owners)
    if not found.python.is_file():
        sys.exit(f"this release of Debian has no {found.python.name} for {machine}")
    return found


def _downloaded(architecture: str, place: Path) -> list[Path]:
    """Return the packages, by an apt that has its own state: the machine's is not changed."""
    for directory in ("lists/partial", "archives/partial", "empty"):
        (place / directory).mkdir(parents=True)
    (place / "status").touch()
    (place / "sources.list").write_text(_sources(architecture), encoding="utf-8")
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::Cache": place,
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": place / "empty",
        "Dir::State": place,
        "Dir::State::status": place / "status",
    }
    words = [word for key, value in settings.items() for word in ("--option", f"{key}={value}")]
    apt = functools.partial(_output, "apt-get", "--quiet=2", *words)
    apt("update")
    apt("install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES)
    return sorted((place / "archives").glob("*.deb"))


def _sources(architecture: str) -> str:
    """Return the lines of a sources.list: this machine's archives of its Debian release."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
    found = {*_output(*command, "Created-By: Packages", "Origin: Debian").splitlines()}
    if not found:
        sys.exit("apt has no list of Debian's packages: run apt-get update, on Debian")
    options = f"[arch={architecture} signed-by={KEYRING}]"
    return "".join(f"deb {options} {one} main\n" for one in sorted(found))


def _output(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words[0]} failed with status {done.returncode}: {done.stderr}")
    return done.stdout
