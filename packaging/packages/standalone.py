# SPDX-License-Identifier: Apache-2.0
"""The package of all programs with their own Python, made of the tarball of a runtime tree.

The tree is the directory of the release. Its launchers are filled in for that place, and are the
programs of the packages without an interpreter.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import install

from packages.contents import (
    PACKAGING,
    PLUGIN_LAUNCHER,
    File,
    Files,
    gathered,
    launchers,
    packed,
    program,
    settings,
    shared,
    toolkit_front,
)
from packages.description import STANDALONE, Package
from packages.release import Release

BILL = "share/gpuhook/sbom.spdx.json"
# The parts of a tarball that are the tree, and those that have other places in a package.
TREE = ("python", "lib", "launchers", "tools", "tree.json", "share/gpuhook")
MOVED = {
    "share/licenses": f"usr/share/licenses/{STANDALONE.name}",
    "share/man": "usr/share/man",
    "share/bash-completion": "usr/share/bash-completion",
    "share/fish": "usr/share/fish",
    "share/zsh": "usr/share/zsh",
}
# Launchers that users do not call.
INTERNAL = ("libexec/python3",)


def contents(release: Release, tarball: Path) -> tuple[Package, Files, dict[str, Any]]:
    """Return the package with the machine of a tarball, its files, and the bill of the tree."""
    unpacked = _unpacked(tarball)
    described = json.loads(unpacked["tree.json"].content)
    if described["version"] != install.version():
        sys.exit(f"{tarball} has version {described['version']}: run make tarball")
    release = replace(release, is_standalone=True)
    files = _placed(release, unpacked) | _programs(release, unpacked)
    files |= shared(release) | settings(release)
    for found in gathered(release).values():
        files |= found
    return (
        replace(STANDALONE, machine=described["architecture"]),
        files,
        json.loads(unpacked[BILL].content),
    )


def bill_of_materials(tree: dict[str, Any], package: Package, path: Path) -> dict[str, Any]:
    """Return the document of a written package: that of its tree, and the package itself."""
    identity = f"SPDXRef-Package-{package.name}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (own,) = (one for one in tree["packages"] if one["name"] == "gpuhook")
    whole = own | {
        "SPDXID": identity,
        "name": package.name,
        "packageFileName": path.name,
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
    }
    whole.pop("externalRefs")
    relations = [
        {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second}
        for first, kind, second in (
            ("SPDXRef-DOCUMENT", "DESCRIBES", identity),
            (identity, "CONTAINS", own["SPDXID"]),
        )
    ]
    contained = [one for one in tree["relationships"] if one["relationshipType"] == "CONTAINS"]
    return tree | {
        "name": path.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{path.name}-{digest}",
        "packages": [whole, *tree["packages"]],
        "relationships": [*relations, *contained],
    }


def _unpacked(tarball: Path) -> Files:
    """Return the files of a tarball by their paths in its directory."""
    files: Files = {}
    with tarfile.open(tarball) as archive:
        for entry in archive:
            name = entry.name.partition("/")[2]
            if entry.issym():
                files[name] = File(b"", link=entry.linkname)
            elif data := archive.extractfile(entry):
                files[name] = File(data.read(), entry.mode)
    return files


def _placed(release: Release, unpacked: Files) -> Files:
    """Return the files of the tree, and the manual, at their places."""
    files: Files = {}
    for path, file in unpacked.items():
        if any(path == part or path.startswith(f"{part}/") for part in TREE):
            files[f"{release.library}/{path}"] = file
        for part, place in MOVED.items():
            if path.startswith(f"{part}/"):
                files[place + path.removeprefix(part)] = file
    pages = [path for path in files if path.startswith("usr/share/man/")]
    return files | {f"{path}.gz": File(packed(files.pop(path).content)) for path in pages}


def _programs(release: Release, unpacked: Files) -> Files:
    """Return the programs, and what they start in the tree."""
    files = launchers(release, PLUGIN_LAUNCHER)
    for path, file in unpacked.items():
        directory, _, name = path.removeprefix("launchers/").partition("/")
        text = file.content.decode() if path.startswith("launchers/") else ""
        for word, value in _values(release).items():
            text = text.replace(f"@{word}@", value)
        if text and directory == "bin":
            files[f"usr/bin/{name}"] = File(text.encode(), 0o755)
        elif text and f"{directory}/{name}" in INTERNAL:
            files[f"{release.library}/{directory}/{name}"] = File(text.encode(), 0o755)
    front = program(release, PACKAGING / "compat/nvidia-ctk").content.decode()
    modules = f'"/{release.modules}"'
    front = front.replace(modules, f'{modules}, "/{release.library}/lib/packages"')
    return files | {toolkit_front(release): File(front.encode(), 0o755)}


def _values(release: Release) -> dict[str, str]:
    """Return the words of the tree's launchers."""
    return {"TREE": f"/{release.library}", "LIB": f"/{release.modules}", "BIN": "/usr/bin"}
