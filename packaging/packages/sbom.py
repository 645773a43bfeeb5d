# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials of the packages.

Source: SPDX 2.3, https://spdx.github.io/spdx-spec/v2.3/, in JSON.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
import uuid
from pathlib import Path
from typing import Any

from packages.contents import Files
from packages.description import LICENSE, PACKAGES, VENDORED, VENDORED_LICENSE, Package
from packages.release import Release

NOTHING_SAID = "NOASSERTION"


def write(release: Release, found: dict[str, Files], written: dict[str, Path], path: Path) -> Path:
    """Write the document of these packages to `path`; return the path."""
    packages, files, relations = [], [], []
    for package in PACKAGES:
        if package.name not in written:
            continue
        inside = found[package.name]
        packages.append(_package(release, package, written[package.name], inside))
        relations.append(_relation("SPDXRef-DOCUMENT", "DESCRIBES", _id(package.name)))
        for name, file in sorted(inside.items()):
            if file.link:
                continue
            files.append(_file(package.name, name, file.content))
            relations.append(_relation(_id(package.name), "CONTAINS", files[-1]["SPDXID"]))
        others = sorted({need.deb.partition(" ")[0] for need in package.needs})
        relations += [_relation(_id(package.name), "DEPENDS_ON", _id(other)) for other in others]
    own = {package["SPDXID"] for package in packages}
    packages.append(_bindings())
    relations.append(_relation(_id("gpuhook"), "CONTAINS", _id(VENDORED)))
    packages += [_other(name) for name in sorted(_others(own, written))]
    name = path.name.removesuffix(".spdx.json")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{_identity(written)}",
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


def _package(release: Release, package: Package, path: Path, files: Files) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        **_other(package.name),
        **({"homepage": release.homepage} if release.homepage else {}),
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": _code(files)},
        "licenseInfoFromFiles": sorted({_licence(name) for name in files}),
        "versionInfo": release.version,
        "packageFileName": path.name,
        "summary": package.summary,
        "supplier": "Organization: gpuhook",
        "licenseConcluded": LICENSE,
        "licenseDeclared": LICENSE,
        "copyrightText": "the gpuhook authors",
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
    }


def _code(files: Files) -> str:
    """Return the verification code of a package's files; source: SPDX 2.3, 7.9."""
    sums = sorted(_sha1(file.content) for file in files.values() if not file.link)
    return _sha1("".join(sums).encode())


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()  # noqa: S324 # which SPDX requires


def _licence(name: str) -> str:
    return VENDORED_LICENSE if "pynvml" in name else LICENSE


def _bindings() -> dict[str, Any]:
    """Return NVML's bindings, of which the packages contain a file."""
    version = importlib.metadata.version(VENDORED)
    link = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": f"pkg:pypi/{VENDORED}@{version}",
    }
    return {
        **_other(VENDORED),
        "versionInfo": version,
        "supplier": "Organization: NVIDIA Corporation",
        "licenseConcluded": VENDORED_LICENSE,
        "licenseDeclared": VENDORED_LICENSE,
        "externalRefs": [link],
    }


def _other(name: str) -> dict[str, Any]:
    """Return a package with only a name."""
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
    sums = {"SHA1": _sha1(content), "SHA256": hashlib.sha256(content).hexdigest()}
    return {
        "SPDXID": f"SPDXRef-File-{hashlib.sha256(f'{package}/{path}'.encode()).hexdigest()[:20]}",
        "fileName": f"./{path}",
        "checksums": [{"algorithm": kind, "checksumValue": value} for kind, value in sums.items()],
        "licenseConcluded": _licence(path),
        "licenseInfoInFiles": [_licence(path)],
        "copyrightText": NOTHING_SAID,
    }


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _id(name: str) -> str:
    return f"SPDXRef-Package-{name}"


def _identity(written: dict[str, Path]) -> uuid.UUID:
    """Return an identifier of these packages, derived from their checksums."""
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in written.values()]
    return uuid.uuid5(uuid.NAMESPACE_OID, "".join(sums))
