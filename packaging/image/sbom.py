# SPDX-License-Identifier: Apache-2.0
"""Write what a runtime tree is made of, as SPDX 2.3, and the licences that come with it.

    python3 packaging/image/sbom.py --packages DIR TREE

TREE/share/gpuhook/sbom.spdx.json names each Debian package that a file was taken of, each Python
package and gpuhook itself, with versions; TREE/share/licenses has their copyright files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CHECKOUT = Path(__file__).resolve().parents[2]
LICENCE_FILES = re.compile(r"(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)


def debian_packages(tree: Path) -> dict[str, str]:
    """Return the versions of the Debian packages of libraries, Python and busybox."""
    names = {path.name for path in (tree / "python/lib").iterdir() if ".so" in path.name}
    beside = Path("/usr/lib") / str(sysconfig.get_config_var("MULTIARCH"))
    paths = [str(Path(sys.executable).resolve()), sysconfig.get_path("stdlib") + "/os.py"]
    paths += [sysconfig.get_path("stdlib") + "/asyncio/__init__.py", "/bin/busybox"]
    paths += [*(str(beside / name) for name in sorted(names))]
    # The path of a library in its package's list: with or without /usr, or behind a link.
    known = {name for path in paths for name in (path, str(Path(path).resolve()))}
    known |= {name.removeprefix("/usr") for name in known}
    owners = _said("dpkg-query", "--search", *sorted(known))
    names = {line.partition(": ")[0].partition(":")[0] for line in owners.splitlines()}
    pairs = _said("dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *sorted(names))
    return dict(line.split() for line in pairs.splitlines())


def document(tree: Path, packages: Path, debian: Mapping[str, str]) -> dict[str, Any]:
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
    made = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or None
    when = datetime.fromtimestamp(made, timezone.utc) if made else datetime.now(timezone.utc)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"gpuhook-{described['version']}",
        "documentNamespace": f"https://spdx.org/spdxdocs/gpuhook-{described['digest']}",
        "creationInfo": {
            "created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
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


def _copy_licences(tree: Path, packages: Path, debian: Iterable[str]) -> None:
    into = tree / "share/licenses"
    (into / "gpuhook").mkdir(parents=True)
    shutil.copy2(CHECKOUT / "LICENSE", into / "gpuhook/LICENSE")
    for name in debian:
        known = Path("/usr/share/doc") / name / "copyright"
        if known.is_file():
            (into / name).mkdir()
            shutil.copyfile(known, into / name / "copyright")
    for found in importlib.metadata.distributions(path=[str(packages)]):
        for file in found.files or ():
            if LICENCE_FILES.match(file.name) and ".dist-info" in file.parts[0]:
                (into / found.name).mkdir(exist_ok=True)
                shutil.copyfile(packages / file, into / found.name / file.name)


def _said(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--packages", type=Path, required=True, help="what pip has installed")
    parser.add_argument("tree", type=Path)
    options = parser.parse_args()
    debian = debian_packages(options.tree)
    _copy_licences(options.tree, options.packages, debian)
    into = options.tree / "share/gpuhook/sbom.spdx.json"
    into.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(options.tree, options.packages, debian), indent=2)
    into.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
