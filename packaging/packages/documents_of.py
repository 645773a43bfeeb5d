# SPDX-License-Identifier: Apache-2.0
"""Documents of a package: licences and changes."""

from __future__ import annotations

import re

from packages.contents import bindings
from packages.description import LICENSE, NAME, VENDORED_LICENSE, Package
from packages.release import Release

FORMAT = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
YEAR = "2026"


def copyright_file(package: Package) -> str:
    """Return debian/copyright; source: its machine-readable format 1.0."""
    stanzas = [
        f"Format: {FORMAT}\nUpstream-Name: {NAME}",
        f"Files: *\nCopyright: {YEAR} the gpuhook authors\nLicense: {LICENSE}",
    ]
    if package.name == "gpuhook":
        stanzas.append(_vendored())
    stanzas.append(
        f"License: {LICENSE}\n"
        " On Debian systems, the full text of the Apache License, Version 2.0, is in the file\n"
        " /usr/share/common-licenses/Apache-2.0."
    )
    return "\n\n".join(stanzas) + "\n"


def bindings_licence() -> str:
    """Return the licence of NVML's bindings, which is at the top of their file."""
    lines = []
    for line in bindings().read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("##"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).rstrip() + "\n"


def _vendored() -> str:
    """Return the stanza of NVML's bindings."""
    lines = bindings_licence().splitlines()
    notice = re.sub(r"^Copyright \(c\) ", "", lines[0]).removesuffix("  All rights reserved.")
    text = "\n".join(f" {line or '.'}" for line in lines[1:]).removeprefix(" .\n").rstrip(" .\n")
    return f"Files: */pynvml.py\nCopyright: {notice}\nLicense: {VENDORED_LICENSE}\n{text}."


def deb_changelog(release: Release, package: Package) -> str:
    """Return the changelog of the package, which is separate from gpuhook's."""
    return (
        f"{NAME} ({release.version}) unstable; urgency=medium\n\n"
        f"  * Release {release.upstream}: see /usr/share/doc/{package.name}/changelog.gz.\n\n"
        f" -- {release.maintainer}  {release.date}\n"
    )


def rpm_changelog(release: Release) -> str:
    """Return the same for a spec file."""
    head = f"* {release.rpm_date} {release.maintainer} - {release.version}"
    return f"{head}\n- Release {release.upstream}\n"
