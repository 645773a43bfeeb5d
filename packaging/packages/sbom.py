# SPDX-License-Identifier: Apache-2.0
"""What is in the packages, as a software bill of materials.

Source: SPDX 2.3, https://spdx.github.io/spdx-spec/v2.3/, in JSON.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

from packages.contents import Files
from packages.description import LICENSE, PACKAGES, VENDORED_LICENSE, Package
from packages.release import Release

NOTHING_SAID = "NOASSERTION"
BINDINGS = "nvidia-ml-py"


def write(release: Release, found: dict[str, Files], written: dict[str, Path], path: Path) -> Path:
    """Write the document of these packages to `path`, and return that."""
    packages, files, relations = [], [], []
    for package in PACKAGES:
        if package.name not in written:
            continue
        packages.append(_package(release, package, written[package.name]))
        relations.append(_relation("SPDXRef-DOCUMENT", "DESCRIBES", _id(package.name)))
        for name, file in sorted(found[package.name].items()):
            if file.link:
                continue
            files.append(_file(package.name, name, file.content))
            relations.append(_relation(_id(package.name), "CONTAINS", files[-1]["SPDXID"]))
        for need in package.needs:
            other = need.deb.partition(" ")[0]
            relations.append(_relation(_id(package.name), "DEPENDS_ON", _id(other)))
    own = {package["SPDXID"] for package in packages}
    packages.append(_bindings())
    relations.append(_relation(_id("gpuhook"), "CONTAINS", _id(BINDINGS)))
    packages += [_other(name) for name in sorted(_others(own, written))]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": path.name.removesuffix(".spdx.json"),
        "documentNamespace": f"https://gpuhook.invalid/spdx/{path.stem}-{_digest(written)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.time)),
            "creators": ["Tool: gpuhook-packages"],
        },
        "packages": packages,
        "files": files,
        "relationships": relations,
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def _others(own: set[str], written: dict[str, Path]) -> set[str]:
    needed = {need for package in PACKAGES if package.name in written for need in package.needs}
    names = {need.deb.partition(" ")[0] for need in needed}
    return {name for name in names if _id(name) not in own}


def _package(release: Release, package: Package, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        **_other(package.name),
        "versionInfo": release.version,
        "packageFileName": path.name,
        "summary": package.summary,
        "supplier": "Organization: gpuhook",
        "licenseConcluded": LICENSE,
        "licenseDeclared": LICENSE,
        "copyrightText": "the gpuhook authors",
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
    }


def _bindings() -> dict[str, Any]:
    """Return NVML's bindings, a file of which goes along."""
    version = importlib.metadata.version(BINDINGS)
    link = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": f"pkg:pypi/{BINDINGS}@{version}",
    }
    return {
        **_other(BINDINGS),
        "versionInfo": version,
        "supplier": "Organization: NVIDIA Corporation",
        "licenseConcluded": VENDORED_LICENSE,
        "licenseDeclared": VENDORED_LICENSE,
        "externalRefs": [link],
    }


def _other(name: str) -> dict[str, Any]:
    """Return a package of which the name is all that is said."""
    return {
        "SPDXID": _id(name),
        "name": name,
        "downloadLocation": NOTHING_SAID,
        "filesAnalyzed": False,
        "licenseConcluded": NOTHING_SAID,
        "licenseDeclared": NOTHING_SAID,
        "copyrightText": NOTHING_SAID,
    }


def _file(package: str, path: str, content: bytes) -> dict[str, Any]:
    sums = {
        "SHA1": hashlib.sha1(content).hexdigest(),  # noqa: S324 # which SPDX requires
        "SHA256": hashlib.sha256(content).hexdigest(),
    }
    vendored = path.endswith("/pynvml.py")
    return {
        "SPDXID": f"SPDXRef-File-{hashlib.sha256(f'{package}/{path}'.encode()).hexdigest()[:20]}",
        "fileName": f"./{path}",
        "checksums": [{"algorithm": kind, "checksumValue": value} for kind, value in sums.items()],
        "licenseConcluded": VENDORED_LICENSE if vendored else LICENSE,
        "copyrightText": NOTHING_SAID,
    }


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _id(name: str) -> str:
    return f"SPDXRef-Package-{name}"


def _digest(written: dict[str, Path]) -> str:
    return hashlib.sha256(
        b"".join(hashlib.sha256(path.read_bytes()).digest() for path in written.values())
    ).hexdigest()[:16]
