# SPDX-License-Identifier: Apache-2.0
"""The packaged release: its version in the syntax of each format, and its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from packages.description import MAINTAINER, PYTHON, REVISION


@dataclass(frozen=True, slots=True)
class Release:
    """A release: `upstream` is its version in both formats, `time` seconds since 1970.

    The packages of a standalone one have an interpreter.
    """

    checkout: Path
    upstream: str
    time: int
    is_standalone: bool = False

    @property
    def version(self) -> str:
        """Return the version with the package's revision."""
        return f"{self.upstream}-{REVISION}"

    @property
    def library(self) -> str:
        """Return the directory of this release's modules, or of its runtime tree.

        Each release has its own: while one takes the place of another, each start of a container
        finds the whole of one of them.
        """
        return f"usr/lib/gpuhook/{self.upstream.replace('~', '.')}"

    @property
    def modules(self) -> str:
        """Return the directory from which the modules are imported."""
        return f"{self.library}/lib/gpuhook" if self.is_standalone else self.library

    @property
    def python(self) -> str:
        """Return the path of the interpreter."""
        return f"/{self.library}/libexec/python3" if self.is_standalone else PYTHON

    @property
    def date(self) -> str:
        """Return the time in the format of Debian's changelogs."""
        return formatdate(self.time).replace("-0000", "+0000")

    @property
    def rpm_date(self) -> str:
        """Return the time in the format of changelogs in spec files."""
        return time.strftime("%a %b %d %Y", time.gmtime(self.time))

    @property
    def maintainer(self) -> str:
        """Return the maintainer: DEBFULLNAME and DEBEMAIL, or MAINTAINER if one is unset."""
        name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
        return f"{name} <{address}>" if name and address else MAINTAINER

    @property
    def homepage(self) -> str:
        """Return the homepage from GPUHOOK_HOMEPAGE, "" if it is unset."""
        return os.environ.get("GPUHOOK_HOMEPAGE", "")


def release(checkout: Path) -> Release:
    """Return the release of a checkout; exit if its time is unknown."""
    text = (checkout / "gpuhook/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        sys.exit(f"{checkout}/gpuhook/__init__.py names no version")
    return Release(checkout, sorted_first(found[1]), _time(checkout))


def sorted_first(version: str) -> str:
    """Return a Python version in a form in which pre-releases sort before the release."""
    return re.sub(r"[.-]?(a|b|rc|dev)(\d+)$", r"~\1\2", version)


def _time(checkout: Path) -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit.

    Source: https://reproducible-builds.org/specs/source-date-epoch/
    """
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if not chosen:
        command = ["git", "-C", str(checkout), "log", "-1", "--format=%ct"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            done = None
        chosen = done.stdout.strip() if done is not None else ""
    if not chosen.isdigit():
        sys.exit("the time of this release is not known: set SOURCE_DATE_EPOCH, in seconds")
    return int(chosen)
