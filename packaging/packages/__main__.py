# SPDX-License-Identifier: Apache-2.0
"""Make packages of this checkout.

    PYTHONPATH=packaging python -m packages deb|rpm [--output build/packages]

The Python that runs this has gpuhook's dependencies: it writes manual pages and completions, and
NVML's bindings are taken from it. SOURCE_DATE_EPOCH is the time of all files; without it that of
the last commit. Two builds of the same checkout are the same, byte for byte.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT)]

from packages import deb, rpm, sbom  # noqa: E402 # of this checkout, installed or not
from packages.contents import contents  # noqa: E402
from packages.description import PACKAGES  # noqa: E402
from packages.release import release  # noqa: E402


def main() -> None:
    """Make the packages of one kind, print their paths."""
    parser = argparse.ArgumentParser(prog="packages", description=__doc__.split("\n", 1)[0])
    parser.add_argument("kind", choices=["deb", "rpm"])
    parser.add_argument("--output", type=Path, default=CHECKOUT / "build/packages")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    made = release(CHECKOUT)
    found = contents(made)
    writer = deb.write if options.kind == "deb" else rpm.write
    output = options.output.resolve()
    written = {}
    for package in PACKAGES:
        if package.name in found:
            written[package.name] = writer(made, package, found[package.name], output)
            print(written[package.name])
    print(
        sbom.write(
            made, found, written, output / f"gpuhook-{made.upstream}-{options.kind}.spdx.json"
        )
    )


if __name__ == "__main__":
    main()
