# SPDX-License-Identifier: Apache-2.0
"""Check a release, print its notes, or write its chart.

PYTHONPATH=packaging python -m release check [TAG]
PYTHONPATH=packaging python -m release notes
PYTHONPATH=packaging python -m release chart DIRECTORY
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
IMAGE = "ghcr.io/gpuhook/gpuhook"


class NotReleasedError(Exception):
    """A reason why this checkout is not a release."""


def version(checkout: Path) -> str:
    """Return the version of the package."""
    text = (checkout / "gpuhook/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise NotReleasedError("gpuhook/__init__.py has no __version__")
    return found[1]


def notes(checkout: Path, number: str) -> str:
    """Return the section of CHANGELOG.md for a version, without its heading."""
    text = (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d$\n(.*?)(?=^## |\Z)"
    found = re.search(heading, text, re.MULTILINE | re.DOTALL)
    if found is None:
        reason = f"CHANGELOG.md has no section `## [{number}] - YYYY-MM-DD`"
        raise NotReleasedError(reason)
    if not found[1].strip():
        raise NotReleasedError(f"the section of {number} in CHANGELOG.md is empty")
    return found[1].strip() + "\n"


def check(checkout: Path, tag: str) -> str:
    """Return the version of a checkout; NotReleasedError if it is not ready to be released."""
    number = version(checkout)
    if tag and tag != f"v{number}":
        raise NotReleasedError(f"the tag is {tag}, and the version is {number}: tag v{number}")
    chart = (checkout / "packaging/helm/gpuhook/Chart.yaml").read_text(encoding="utf-8")
    for key in ("version", "appVersion"):
        if f"\n{key}: {number}\n" not in chart:
            raise NotReleasedError(f"Chart.yaml has another {key}: run make generate")
    notes(checkout, number)
    command = ["git", "-C", str(checkout), "status", "--porcelain"]
    changed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if changed:
        raise NotReleasedError(f"files are not committed: {', '.join(changed.split()[1::2])}")
    return number


def chart(checkout: Path, directory: Path) -> Path:
    """Write the chart that names the published image; return its directory."""
    made = directory / "gpuhook"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(checkout / "packaging/helm/gpuhook", made)
    for name, pattern, text in (
        ("values.yaml", r"^(image:\n(?:  #.*\n)*  repository:) .*$", rf"\1 {IMAGE}"),
        ("README.md", r'^(\| `image.repository` \| )`"[^"]*"`', rf'\1`"{IMAGE}"`'),
    ):
        file = made / name
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        new, count = re.subn(pattern, text, old, flags=re.MULTILINE)
        if count != 1:
            raise NotReleasedError(f"{name} has no image.repository in its place")
        file.write_text(new, encoding="utf-8")
    return made


def main(checkout: Path = CHECKOUT) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("notes", help="print the section of CHANGELOG.md for this version")
    checking = commands.add_parser("check", help="compare the version in all places")
    checking.add_argument("tag", nargs="?", default="", help="the tag of the release")
    writing = commands.add_parser("chart", help="write the chart that names the published image")
    writing.add_argument("directory", type=Path)
    options = parser.parse_args()
    try:
        if options.command == "chart":
            print(chart(checkout, options.directory))
        elif options.command == "notes":
            print(notes(checkout, version(checkout)), end="")
        else:
            print(f"{check(checkout, options.tag)} can be released")
    except NotReleasedError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
