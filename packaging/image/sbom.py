# SPDX-License-Identifier: Apache-2.0
"""Write what a runtime tree is made of, as SPDX 2.3, and the licences that come with it.

    python3 packaging/image/sbom.py --packages DIR TREE

TREE/share/gpuhook/sbom.spdx.json names each Debian package that a file was taken of, each Python
package and gpuhook itself, with versions; TREE/share/licenses has their copyright files. Its time
is SOURCE_DATE_EPOCH, or the current one.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from debian import Debian

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parents[2]
LICENCE_FILES = re.compile(r"(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)


def write(tree: Path, packages: Path, debian: Debian, when: int) -> None:
    """Write the document of a tree, and copy the licences. `when` is in seconds since 1970."""
    names = {path.name for path in (tree / "python/lib").iterdir() if ".so" in path.name}
    paths = [debian.shared_library(name) for name in sorted(names - {"ld.so"})]
    paths += [debian.python, debian.library / "os.py", debian.library / "asyncio/__init__.py"]
    found = debian.packages([*paths, debian.busybox])
    _copy_licences(tree, packages, debian, found)
    into = tree / "share/gpuhook/sbom.spdx.json"
    into.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(tree, packages, found, when), indent=2)
    into.write_text(text + "\n", encoding="utf-8")


def document(tree: Path, packages: Path, debian: Mapping[str, str], when: int) -> dict[str, Any]:
    """Return the SPDX document of a tree."""
    described = json.loads((tree / "tree.json").read_text(encoding="utf-8"))
    parts = [_part("gpuhook", described["version"], "Apache-2.0", "generic")]
    for name, version in sorted(debian.items()):
        parts.append(_part(name, version, "NOASSERTION", "deb/debian"))
    for found in sorted(
        importlib.metadata.distributions(path=[str(packages)]), key=lambda one: one.name
    ):
        licence = found.metadata["License-Expression"] or "NOASSERTION"
        parts.append(_part(found.name, found.version, licence, "pypi"))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"gpuhook-{described['version']}",
        "documentNamespace": f"https://spdx.org/spdxdocs/gpuhook-{described['digest']}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
            "creators": [f"Tool: gpuhook-{described['version']}"],
        },
        "packages": parts,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT" if index == 0 else parts[0]["SPDXID"],
                "relationshipType": "DESCRIBES" if index == 0 else "CONTAINS",
                "relatedSpdxElement": part["SPDXID"],
            }
            for index, part in enumerate(parts)
        ],
    }


def _part(name: str, version: str, licence: str, kind: str) -> dict[str, Any]:
    known = hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:8]
    return {
        "name": name,
        "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}-{known}",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{name}@{version}",
            }
        ],
    }


def _copy_licences(tree: Path, packages: Path, debian: Debian, found: Mapping[str, str]) -> None:
    into = tree / "share/licenses"
    (into / "gpuhook").mkdir(parents=True)
    shutil.copy2(CHECKOUT / "LICENSE", into / "gpuhook/LICENSE")
    for name in found:
        known = debian.root / "usr/share/doc" / name / "copyright"
        if known.is_file():
            (into / name).mkdir()
            shutil.copyfile(known, into / name / "copyright")
    for one in importlib.metadata.distributions(path=[str(packages)]):
        for file in one.files or ():
            if LICENCE_FILES.match(file.name) and ".dist-info" in file.parts[0]:
                (into / one.name).mkdir(exist_ok=True)
                shutil.copyfile(packages / file, into / one.name / file.name)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--packages", type=Path, required=True, help="what pip has installed")
    parser.add_argument("tree", type=Path)
    options = parser.parse_args()
    when = os.environ.get("SOURCE_DATE_EPOCH") or time.time()
    write(options.tree, options.packages, Debian(), int(when))


if __name__ == "__main__":
    main()
