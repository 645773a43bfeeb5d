# SPDX-License-Identifier: Apache-2.0
"""Build packages of this checkout.

    PYTHONPATH=packaging python -m packages deb|rpm... [--tarball FILE] [--output build/packages]

The Python that runs this has gpuhook's dependencies: it writes manual pages and completions, and
NVML's bindings are taken from it. With a tarball, which `make tarball` makes, the package is the
standalone one, which has the Python of the tarball. SOURCE_DATE_EPOCH is the time of all files;
without it that of the last commit. Two builds of the same checkout are the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT)]

from packages import deb, rpm, sbom, standalone  # noqa: E402 # of this checkout, installed or not
from packages.contents import Files, contents  # noqa: E402
from packages.description import PACKAGES  # noqa: E402
from packages.release import Release, release  # noqa: E402

WRITERS = {"deb": deb.write, "rpm": rpm.write}


def main() -> None:
    """Build the packages of one kind or both, and print their paths."""
    parser = argparse.ArgumentParser(prog="packages", description=__doc__.split("\n", 1)[0])
    parser.add_argument("kinds", nargs="+", choices=["deb", "rpm"])
    parser.add_argument("--tarball", type=Path, help="the tarball of the standalone package")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "build/packages")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    made, output = release(CHECKOUT), options.output.resolve()
    if options.tarball:
        for kind in options.kinds:
            write_standalone(kind, made, options.tarball, output)
        return
    found = contents(made)
    for kind in options.kinds:
        write(kind, made, found, output)


def write(kind: str, made: Release, found: dict[str, Files], output: Path) -> None:
    """Write the packages of one kind, and their bill of materials."""
    paths: dict[str, Path] = {}
    inside: dict[str, Files] = {}
    for package in PACKAGES:
        if package.name in found:
            path, inside[package.name] = WRITERS[kind](made, package, found[package.name], output)
            paths[package.name] = path
            print(path)
    bill = output / f"gpuhook-{made.upstream}-{kind}.spdx.json"
    print(sbom.write(made, inside, paths, bill))


def write_standalone(kind: str, made: Release, tarball: Path, output: Path) -> None:
    """Write the standalone package of one kind, and its bill of materials."""
    package, files, tree = standalone.contents(made, tarball)
    path, _ = WRITERS[kind](made, package, files, output)
    bill = output / f"{path.name}.spdx.json"
    document = standalone.bill_of_materials(tree, package, path)
    bill.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(path, bill, sep="\n")


if __name__ == "__main__":
    main()
