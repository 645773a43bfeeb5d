# SPDX-License-Identifier: Apache-2.0
"""Interpreters of other Debian releases, which run on this machine, for nodes with other Pythons.

Each is a tree of Debian's packages and a launcher that starts its interpreter with its own dynamic
loader and libraries. The launcher works as the path of an interpreter, also in a shebang line; the
processes that it starts inherit no variable from it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.contract.build_cache import built
from tests.contract.debs import mirror, unpacked

LIBRARIES = ["libc6", "libcrypt1", "zlib1g", "libexpat1", "libgcc-s1"]
RELEASES = {"3.9": ("bullseye", ["libffi7"]), "3.13": ("trixie", ["libffi8"])}
LOADER = "lib64/ld-linux-x86-64.so.2"
WITHOUT_DOCS = ["--exclude=./usr/share/*"]


def interpreter(version: str) -> Path:
    """Return the launcher of the interpreter `version`: "3.9" (bullseye) or "3.13" (trixie).

    3.9 is also the system Python of RHEL 9 and Amazon Linux 2023.
    """
    suite, libraries = RELEASES[version]
    packages = [*LIBRARIES, *libraries, f"python{version}-minimal"]
    packages += [f"libpython{version}-minimal", f"libpython{version}-stdlib"]
    recipe = " ".join([Path(__file__).read_text(encoding="utf-8"), mirror()])

    def build(place: Path) -> None:
        tree = place / "tree"
        for name in ("bin", "sbin", "lib", "lib64"):
            (tree / "usr" / name).mkdir(parents=True)
            (tree / name).symlink_to(f"usr/{name}")
        unpacked(suite, packages, tree, *WITHOUT_DOCS)
        _loader_inside(tree)
        launcher = place / "python3"
        launcher.write_text(_launcher(version), encoding="utf-8")
        launcher.chmod(0o755)

    return built(f"python-{version}", recipe, build) / "python3"


def _loader_inside(tree: Path) -> None:
    """Make the absolute link of the loader relative, so that it points into the tree."""
    loader = tree / LOADER
    if loader.is_symlink() and str(loader.readlink()).startswith("/"):
        inside = str(loader.readlink())
        loader.unlink()
        loader.symlink_to(f"../..{inside}")


def _launcher(version: str) -> str:
    """Return the launcher's text; it finds the tree in its own directory, also through links."""
    libraries = "usr/lib/x86_64-linux-gnu"
    command = [LOADER, "--library-path", libraries, f"usr/bin/python{version}"]
    words = [word if word.startswith("--") else f'"$tree"/{shlex.quote(word)}' for word in command]
    return "\n".join(
        [
            "#!/bin/sh",
            'tree=$(dirname "$(readlink -f "$0")")/tree',
            f'exec {" ".join(words)} "$@"',
            "",
        ]
    )
