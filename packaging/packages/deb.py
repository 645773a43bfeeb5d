# SPDX-License-Identifier: Apache-2.0
"""Debian packages: the archive, its control files and maintainer scripts.

Source: deb(5), deb-control(5), deb-triggers(5), Debian Policy 6 (maintainer scripts) and 12.

The archive is written here, not by dpkg-deb, for the order of its files. dpkg renames them into
place in that order: programs come last, so that what they import is there before them.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import textwrap
from pathlib import Path

from packages.contents import (
    HERE,
    RELOAD,
    File,
    Files,
    bindings_licence,
    filled,
    maintain,
    packed,
    script,
    static_units,
    superseded,
    units,
)
from packages.description import (
    CONFIG,
    LICENSE,
    NAME,
    RUNTIME,
    SECTION,
    VENDORED_LICENSE,
    Package,
)
from packages.release import Release

BINARY = b"2.0\n"
ARCHITECTURES = {"": "all", "x86_64": "amd64", "aarch64": "arm64"}
COPYRIGHT_FORMAT = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
YEAR = "2026"
# The package is still installed: repeat the steps that its removal has undone (Policy 6.5).
CONFIGURED = "configure|abort-upgrade|abort-remove|abort-deconfigure"
ZSH = ("usr/share/zsh/site-functions/", "usr/share/zsh/vendor-completions/")


def write(release: Release, package: Package, files: Files, directory: Path) -> tuple[Path, Files]:
    """Write one package into `directory`; return its path and contents."""
    files = _in_debian(package, files)
    files |= _documents(release, package) | _overrides(release, package, files)
    control = _control_files(release, package, files)
    path = directory / f"{package.name}_{release.version}_{ARCHITECTURES[package.machine]}.deb"
    members = {
        "debian-binary": BINARY,
        "control.tar.xz": _tar(control, release.time),
        "data.tar.xz": _tar(files, release.time),
    }
    path.write_bytes(_ar(members, release.time))
    return path, files


def _in_debian(package: Package, files: Files) -> Files:
    """Return the files at their paths in Debian."""
    licences = f"usr/share/licenses/{package.name}/", f"usr/share/doc/{package.name}/licenses/"
    return {path.replace(*ZSH).replace(*licences): file for path, file in files.items()}


def _documents(release: Release, package: Package) -> Files:
    place = f"usr/share/doc/{package.name}"
    changes = (release.checkout / "CHANGELOG.md").read_bytes()
    return {
        f"{place}/copyright": File(_copyright(package).encode()),
        f"{place}/changelog.gz": File(packed(changes)),
        f"{place}/changelog.Debian.gz": File(packed(_changelog(release, package).encode())),
    }


def _copyright(package: Package) -> str:
    """Return debian/copyright; source: its machine-readable format 1.0."""
    stanzas = [
        f"Format: {COPYRIGHT_FORMAT}\nUpstream-Name: {NAME}",
        f"Files: *\nCopyright: {YEAR} the gpuhook authors\nLicense: {LICENSE}",
    ]
    if package.name == NAME:
        stanzas.append(_vendored())
    if package.machine:
        stanzas[0] += f"\nComment: {_bundled(package)}"
    stanzas.append(
        f"License: {LICENSE}\n"
        " On Debian systems, the full text of the Apache License, Version 2.0, is in the file\n"
        " /usr/share/common-licenses/Apache-2.0."
    )
    return "\n\n".join(stanzas) + "\n"


def _bundled(package: Package) -> str:
    """Return the sentences about the interpreter, the libraries and the packages."""
    return (
        "Python, the C library, other libraries, busybox and Python packages are in the\n"
        " directory of the release. Their licences are in\n"
        f" /usr/share/doc/{package.name}/licenses, and their versions in\n"
        " share/gpuhook/sbom.spdx.json of that directory. The sources of those of Debian are at\n"
        " https://snapshot.debian.org."
    )


def _vendored() -> str:
    """Return the stanza of NVML's bindings."""
    lines = bindings_licence().splitlines()
    notice = re.sub(r"^Copyright \(c\) ", "", lines[0]).removesuffix("  All rights reserved.")
    text = "\n".join(f" {line or '.'}" for line in lines[1:]).removeprefix(" .\n").rstrip(" .\n")
    return f"Files: */pynvml.py\nCopyright: {notice}\nLicense: {VENDORED_LICENSE}\n{text}."


def _changelog(release: Release, package: Package) -> str:
    """Return the changelog of the package, which is separate from gpuhook's."""
    return (
        f"{NAME} ({release.version}) unstable; urgency=medium\n\n"
        f"  * Release {release.upstream}: see /usr/share/doc/{package.name}/changelog.gz.\n\n"
        f" -- {release.maintainer}  {release.date}\n"
    )


def _overrides(release: Release, package: Package, files: Files) -> Files:
    """Return the lintian overrides with their reasons."""
    names = ["lintian-overrides"]
    if any(path.startswith(release.library) for path in files):
        names.append("lintian-overrides-library")
    if package.machine:
        names.append("lintian-overrides-standalone")
    text = "".join((HERE / name).read_text(encoding="utf-8") for name in names)
    content = text.replace("@PACKAGE@", package.name).encode()
    return {f"usr/share/lintian/overrides/{package.name}": File(content)}


def _control_files(release: Release, package: Package, files: Files) -> Files:
    sums = "".join(
        f"{hashlib.md5(files[path].content).hexdigest()}  {path}\n"  # noqa: S324 # dpkg's format
        for path in sorted(files)
        if not files[path].link and path != CONFIG
    )
    control: Files = {
        "control": File(_control(release, package, files).encode()),
        "md5sums": File(sums.encode()),
    }
    if CONFIG in files:
        control["conffiles"] = File(f"/{CONFIG}\n".encode())
    if package.name == RUNTIME:
        watched = ("/usr/bin/python3", f"/{release.library}")
        control["triggers"] = File("".join(f"interest-noawait {p}\n" for p in watched).encode())
    for name, text in scripts(release, package, files).items():
        control[name] = File(text.encode(), 0o755)
    return control


def _control(release: Release, package: Package, files: Files) -> str:
    size = sum(-(-len(file.content) // 1024) for file in files.values())
    fields = {
        "Package": package.name,
        "Source": NAME if package.name != NAME else "",
        "Version": release.version,
        "Architecture": ARCHITECTURES[package.machine],
        "Maintainer": release.maintainer,
        "Installed-Size": str(size),
        "Depends": ", ".join(need.in_deb(release.version) for need in package.needs),
        "Suggests": ", ".join(package.suggests),
        "Conflicts": ", ".join(package.replaces),
        "Replaces": ", ".join(package.replaces),
        "Provides": ", ".join(package.provides(f"{{}} (= {release.version})")),
        "Section": SECTION,
        "Priority": "optional",
        "Homepage": release.homepage,
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    lines.append(f"Description: {package.summary}")
    for number, paragraph in enumerate(package.described.split("\n")):
        lines += [" ."] if number else []
        lines += [f" {line}" for line in textwrap.wrap(paragraph, 76)]
    return "\n".join(lines) + "\n"


def scripts(release: Release, package: Package, files: Files) -> dict[str, str]:
    """Return the maintainer scripts of a package by their names."""
    program = maintain(release)
    services = " ".join(units(files))
    after, before = [], []
    if package.name == RUNTIME:
        # Its trigger handles the modules of the other packages.
        after.append(_in_case(f"{CONFIGURED}|triggered", f"{program} byte-code"))
    if services:
        after.append(_in_case(CONFIGURED, f"{program} units-on {services}"))
        before.append(
            _in_case("remove", f"{program} units-off {services} {' '.join(static_units(files))}")
        )
    if package.has_modules or package.has_runtime:
        before.append(_in_case("remove", f"{program} leaving {package.name}"))
    made = {
        "postinst": after,
        "prerm": before,
        "postrm": _postrm(release, package, services),
    }
    return {
        name: filled(release, "\n".join(["#!/bin/sh", "set -e", *parts]))
        for name, parts in made.items()
        if parts
    }


def _postrm(release: Release, package: Package, services: str) -> list[str]:
    parts = []
    if package.has_modules:
        upgrade = f'if [ "$1" = upgrade ] && [ "${{2-}}" != "{release.version}" ]; then'
        parts.append(f"{upgrade}\n{superseded(package.name)}fi\n")
    if package.has_runtime:
        parts.append(_in_case("purge", script("purge-runtime")))
    if package.has_command:
        parts.append(_in_case("purge", script("purge")))
    if services:
        helper = f"deb-systemd-helper purge {services} >/dev/null"
        # Another package may have the units now.
        unused = "command -v gpuhook >/dev/null || ! command -v deb-systemd-helper >/dev/null"
        parts.append(_in_case("purge", f"{unused} || {helper}"))
        parts.append(_in_case("remove", RELOAD))
    return parts


def _in_case(verbs: str, text: str) -> str:
    return f'case "$1" in\n{verbs})\n{text.rstrip()}\n;;\nesac\n'


def _tar(files: Files, time: int) -> bytes:
    """Return a compressed archive whose bytes depend only on its content and time."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in _order(files):
            entry = tarfile.TarInfo(f"./{path}" if path else "./")
            entry.mtime, entry.uname, entry.gname = time, "root", "root"
            file = files.get(path)
            if file is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            elif file.link:
                entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, file.link
                archive.addfile(entry)
            else:
                entry.mode, entry.size = file.mode, len(file.content)
                archive.addfile(entry, io.BytesIO(file.content))
    return lzma.compress(made.getvalue(), preset=6, check=lzma.CHECK_CRC64)


def _order(files: Files) -> list[str]:
    """Return directories and files, programs last, each directory before its files."""
    directories = {""}
    for path in files:
        parts = path.split("/")[:-1]
        directories |= {"/".join(parts[: count + 1]) for count in range(len(parts))}
    late = sorted(path for path in files if path.startswith("usr/bin/"))
    return [*sorted(directories | (set(files) - set(late))), *late]


def _ar(members: dict[str, bytes], time: int) -> bytes:
    """Return an ar archive, as deb(5) has it."""
    made = b"!<arch>\n"
    for name, data in members.items():
        made += f"{name:<16}{time:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        made += data + b"\n" * (len(data) % 2)
    return made
