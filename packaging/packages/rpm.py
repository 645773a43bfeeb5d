# SPDX-License-Identifier: Apache-2.0
"""RPM packages: a spec file for each, and rpmbuild.

Source: the RPM reference manual, https://rpm-software-management.github.io/rpm/manual/, chapters
on spec files, scriptlets and triggers.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

from packages.contents import (
    RELOAD,
    File,
    Files,
    bindings_licence,
    filled,
    maintain,
    script,
    static_units,
    superseded,
    units,
)
from packages.description import CONFIG, LICENSE, NAME, RUNTIME, VENDORED, VENDORED_LICENSE, Package
from packages.release import Release

# Reproducible packages: independent of the time, the user and the machine.
SETTINGS = {
    "_build_id_links": "none",
    "_buildhost": "reproducible",
    "_binary_payload": "w9.gzdio",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
    "use_source_date_epoch_as_buildtime": "1",
    "__os_install_post": "%{nil}",  # byte code is made on the node
    "debug_package": "%{nil}",
}
USED = "coreutils sed"  # by what runs when a package goes
# Of what a standalone package bundles; the files of the licences name each part.
BUNDLED_LICENSES = "BSD-3-Clause AND GPL-2.0-only AND LGPL-2.1-or-later AND MIT AND Python-2.0.1"
OWNED = ("usr/lib/gpuhook", "usr/share/gpuhook", "etc/gpuhook")


def write(release: Release, package: Package, files: Files, directory: Path) -> tuple[Path, Files]:
    """Write one package into `directory`; return its path and contents."""
    files = files | _documents(release, package)
    machine = package.machine or "noarch"
    name = f"{package.name}-{release.version}.{machine}.rpm"
    with tempfile.TemporaryDirectory() as place:
        staged, spec = Path(place, "staged"), Path(place, f"{package.name}.spec")
        _stage(files, staged, release.time)
        spec.write_text(_spec(release, package, files), encoding="utf-8")
        settings = SETTINGS | {"_topdir": place, "staged": str(staged)}
        words = [f"--define={key} {value}" for key, value in settings.items()]
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(release.time), "LC_ALL": "C"}
        command = ["rpmbuild", "-bb", "--quiet", "--nodeps", f"--target={machine}-linux", *words]
        subprocess.run([*command, str(spec)], env=env, check=True)
        shutil.copyfile(Path(place, "RPMS", machine, name), directory / name)
    return directory / name, files


def _documents(release: Release, package: Package) -> Files:
    changes = (release.checkout / "CHANGELOG.md").read_bytes()
    licence = (release.checkout / "LICENSE").read_bytes()
    place = f"usr/share/licenses/{package.name}"
    files = {
        f"usr/share/doc/{package.name}/CHANGELOG.md": File(changes),
        f"{place}/LICENSE": File(licence),
    }
    if package.name == NAME:
        files[f"{place}/LICENSE.pynvml"] = File(bindings_licence().encode())
    return files


def _stage(files: Files, place: Path, time: int) -> None:
    for path, file in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            target.symlink_to(file.link)
        else:
            target.write_bytes(file.content)
            target.chmod(file.mode)
            os.utime(target, (time, time))


def _spec(release: Release, package: Package, files: Files) -> str:
    licence, scriptlets = LICENSE, _scriptlets(release, package, files)
    if package.name == NAME:
        licence += f" AND {VENDORED_LICENSE}"
    if package.machine:
        licence += f" AND {BUNDLED_LICENSES}"
    used = f"{USED} findutils" if package.has_modules else USED
    upstream, _, revision = release.version.rpartition("-")
    head = [
        f"Name: {package.name}",
        f"Version: {upstream}",
        f"Release: {revision}",
        f"Summary: {package.summary}",
        f"License: {licence}",
        "Group: System Environment/Base",
        f"Packager: {release.maintainer}",
        *([f"URL: {release.homepage}"] if release.homepage else []),
        *([] if package.machine else ["BuildArch: noarch"]),
        "AutoReqProv: no",
        f"Provides: {package.name} = %{{version}}-%{{release}}",
        *(f"Requires: {need.in_rpm(release.version)}" for need in package.needs),
        *(f"Suggests: {name}" for name in package.suggests),
        *(f"Conflicts: {name}" for name in package.replaces),
        *(f"Provides: {name}" for name in package.provides("{} = %{{version}}-%{{release}}")),
        *_bundled(package),
        *(f"Requires({when}): {used}" for when in ("preun", "postun") if scriptlets),
    ]
    described = "\n\n".join(textwrap.fill(part, 78) for part in package.described.split("\n"))
    parts = [
        "\n".join(head),
        f"%description\n{described}",
        "%install\nmkdir -p %{buildroot}\ncp -a %{staged}/. %{buildroot}",
        *scriptlets,
        "%files\n%defattr(-,root,root)\n" + "\n".join(_listed(files, package)),
        f"%changelog\n{_changelog(release)}",
    ]
    return "\n\n".join(parts) + "\n"


def _changelog(release: Release) -> str:
    head = f"* {release.rpm_date} {release.maintainer} - {release.version}"
    return f"{head}\n- Release {release.upstream}\n"


def _listed(files: Files, package: Package) -> list[str]:
    """Return the lines of %files: directories of gpuhook only, and files."""
    own = (*OWNED, f"usr/share/doc/{package.name}", f"usr/share/licenses/{package.name}")
    directories = set()
    for path in files:
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            directory = "/".join(parts[:count])
            if any(directory == one or directory.startswith(one + "/") for one in own):
                directories.add(directory)
    lines = [f"%dir %attr(0755,root,root) /{directory}" for directory in sorted(directories)]
    for path in sorted(files):
        kind = "%config(noreplace) " if path == CONFIG else ""
        kind = "%license " if path.startswith("usr/share/licenses/") else kind
        kind = "%doc " if path.startswith(("usr/share/doc/", "usr/share/man/")) else kind
        lines.append(f"{kind}/{path}")
    return lines


def _scriptlets(release: Release, package: Package, files: Files) -> list[str]:
    """Return the scriptlets; $1 is the number of installed versions afterwards."""
    program = maintain(release)
    services = " ".join(units(files))
    made: dict[str, str] = {}
    leaving = f"{program} leaving {package.name}\n"
    purge = script("purge-runtime") if package.has_runtime else ""
    if package.has_modules:
        made["%posttrans"] = f"{program} byte-code"
        made["%preun"] = f'if [ "$1" -eq 0 ]; then\n{leaving}else\n{superseded(package.name)}fi'
    elif package.has_runtime:
        made["%preun"] = f'if [ "$1" -eq 0 ]; then\n{leaving}fi'
    if package.name == RUNTIME:
        made["%triggerin -- python3"] = f"{program} byte-code"
    if services:
        # Keep the administrator's changes since the first installation.
        on, again = (f"{program} units-{verb} {services}" for verb in ("on", "new"))
        made["%post"] = f'if [ "$1" -eq 1 ]; then\n{on}\nelse\n{again}\nfi'
        known = " ".join([services, *static_units(files)])
        off = f'if [ "$1" -eq 0 ]; then /{release.library}/maintain units-off {known} || :; fi\n'
        made["%preun"] = off + made["%preun"]
    if package.has_command:
        purge += script("purge") + RELOAD
    if purge:
        made["%postun"] = f'if [ "$1" -eq 0 ]; then\n{purge}fi'
    return [f"{name}\n{_escaped(filled(release, text))}" for name, text in made.items()]


def _bundled(package: Package) -> list[str]:
    """Return the lines for a bundled library, as Fedora requires them."""
    if package.name != NAME:
        return []
    version = importlib.metadata.version(VENDORED)
    return [f"Provides: bundled(python3dist({VENDORED})) = {version}"]


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
