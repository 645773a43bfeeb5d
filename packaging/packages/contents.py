# SPDX-License-Identifier: Apache-2.0
"""The files of each package, in memory: paths as on the node, content, mode."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import bundle
import install

from packages.description import CONFIG, RUNTIME
from packages.modules import module_files, shared_out
from packages.release import Release

HERE = Path(__file__).parent
PACKAGING = HERE.parent
NOT_AT_RUN_TIME = (".pyi", ".proto", ".pyc")
UNITS = "usr/lib/systemd/system"
# The last step of a package after the removal of its units.
RELOAD = "[ ! -d /run/systemd/system ] || systemctl daemon-reload || true\n"
PLUGIN_LAUNCHER = {"gpuhook-device-plugin": "packages/gpuhook-device-plugin.sh"}
# Existing files of these directories of packaging/: package, target directory, suffix.
GATHERED = (
    ("gpuhook", "systemd", UNITS, (".service", ".path", ".timer", ".target", ".socket")),
    ("gpuhook", "systemd", "usr/lib/systemd/system-preset", (".preset",)),
    ("gpuhook", "udev", "usr/lib/udev/rules.d", (".rules",)),
    ("gpuhook", "interposers", "usr/share/gpuhook/interposers", (".yaml",)),
    ("gpuhook-device-plugin", "kubernetes", "usr/share/gpuhook/kubernetes", (".yaml", ".json")),
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a package; `link` is a symbolic link's target, "" for a regular file."""

    content: bytes
    mode: int = 0o644
    link: str = ""


Files = dict[str, File]  # by path, without the leading slash


def contents(release: Release) -> dict[str, Files]:
    """Return the files of every package; none for a package without files in this checkout."""
    found: dict[str, Files] = {"gpuhook-nvidia-compat": _compat(release)}
    for package, modules in shared_out(release.checkout, list(bundle.ENTRIES)).items():
        found[package] = _library(release, package, modules)
    found["gpuhook-runtime"] |= _runtime(release)
    found["gpuhook"] |= _command(release)
    listed = f"{release.library}/gpuhook.modules"
    found["gpuhook"][listed] = File(found["gpuhook"][listed].content + b"./pynvml.py\n")
    found["gpuhook-device-plugin"] |= launchers(release, PLUGIN_LAUNCHER)
    for package, files in gathered(release).items():
        found[package] |= files
    for name, page in _manual(release).items():
        found[_owner(name)][f"usr/share/man/man1/{name}.gz"] = page
    return {package: files for package, files in found.items() if files}


def gathered(release: Release) -> dict[str, Files]:
    """Return the units, rules and manifests of each package."""
    found: dict[str, Files] = {}
    for package, directory, place, endings in GATHERED:
        files = found.setdefault(package, {})
        for path in sorted((PACKAGING / directory).rglob("*")):
            if path.suffix in endings and path.is_file():
                relative = path.relative_to(PACKAGING / directory)
                name = relative.name if "systemd" in place or "udev" in place else relative
                files[f"{place}/{name}"] = File(_filled(release, path))
    return found


def superseded(package: str) -> str:
    """Return the shell text that runs after another release has replaced a package."""
    name = "superseded-runtime" if package == RUNTIME else "superseded"
    return script(name).replace("@PACKAGE@", package)


def script(name: str) -> str:
    """Return the text of a shell script."""
    return (HERE / f"scripts/{name}.sh").read_text(encoding="utf-8")


def maintain(release: Release) -> str:
    """Return the start of a shell command that runs the program `maintain`, if it exists.

    It may be gone: a removal can be forced.
    """
    program = f"/{release.library}/maintain"
    return f"[ ! -x {program} ] || {program}"


def units(files: Files) -> list[str]:
    """Return the units among a package's files that are enabled when it is installed."""
    return sorted(
        path.rpartition("/")[2]
        for path, file in files.items()
        if path.startswith(UNITS) and b"\n[Install]" in file.content
    )


def static_units(files: Files) -> list[str]:
    """Return the services of a package that only other units start."""
    known = {path.rpartition("/")[2] for path in files if path.startswith(f"{UNITS}/")}
    return sorted(known - set(units(files)))


def packed(data: bytes) -> bytes:
    """Return data compressed as with gzip -9n: reproducible."""
    return gzip.compress(data, 9, mtime=0)


def filled(release: Release, text: str) -> str:
    """Return the text of a template with its @WORDS@ filled in."""
    for word, value in _values(release).items():
        text = text.replace(f"@{word}@", value)
    return text


def _values(release: Release) -> dict[str, str]:
    return {
        "PYTHON": release.python,
        "CLI": release.python,
        "BIN": "/usr/bin",
        "SHARE": "/usr/share/gpuhook",
        "LIB": f"/{release.modules}",
        "LIBRARY": release.library,
        "VERSION": install.version(),
    }


def _filled(release: Release, path: Path) -> bytes:
    return filled(release, path.read_text(encoding="utf-8")).encode()


def program(release: Release, path: Path) -> File:
    """Return a filled template, which is a program if it names its interpreter."""
    content = _filled(release, path)
    return File(content, 0o755 if content.startswith(b"#!") else 0o644)


def launchers(release: Release, templates: dict[str, str]) -> Files:
    """Return programs by their names, made of templates in packaging/."""
    return {
        f"usr/bin/{name}": program(release, PACKAGING / template)
        for name, template in templates.items()
    }


def _library(release: Release, package: str, modules: set[str]) -> Files:
    """Return the files of a package's modules, and the list for the removal of their byte code."""
    known = module_files(release.checkout)
    paths = {str(known[name].relative_to(release.checkout)): known[name] for name in modules}
    listed = "".join(f"{path}\n" for path in sorted(paths))
    files = {f"{release.library}/{path}": File(file.read_bytes()) for path, file in paths.items()}
    files[f"{release.library}/{package}.modules"] = File(listed.encode())
    return files


def _runtime(release: Release) -> Files:
    files = launchers(release, install.LAUNCHERS)
    for name in ("gpuhook_bundle.py", "gpuhook_os.py", "bundle.py", "packages/byte_code.py"):
        path = PACKAGING / name
        files[f"{release.library}/{path.name}"] = File(path.read_bytes())
    return files | shared(release)


def shared(release: Release) -> Files:
    """Return the files for engines, and the program that the maintainer scripts call."""
    files = {f"{release.library}/maintain": program(release, HERE / "scripts/maintain.sh")}
    for name, template in install.SHARED.items():
        if name.startswith(("systemd/", "udev/")):
            continue  # packages have them where systemd reads them
        files[f"usr/share/gpuhook/{name}"] = program(release, PACKAGING / template)
    return files


def _command(release: Release) -> Files:
    """Return the other files of `gpuhook`: data, settings, NVML's bindings."""
    files = launchers(release, install.CLI_LAUNCHERS)
    for path in sorted((release.checkout / "gpuhook").rglob("*")):
        if path.is_file() and path.suffix not in (".py", *NOT_AT_RUN_TIME):
            relative = path.relative_to(release.checkout)
            files[f"{release.library}/{relative}"] = File(path.read_bytes())
    files[f"{release.library}/pynvml.py"] = File(bindings().read_bytes())
    files |= settings(release)
    files[toolkit_front(release)] = program(release, PACKAGING / "compat/nvidia-ctk")
    with tempfile.TemporaryDirectory() as share:
        script = PACKAGING / "documents.py"
        command = [sys.executable, "-I", str(script), str(release.checkout), share]
        subprocess.run(command, check=True)
        for path in sorted(Path(share).rglob("*")):
            if path.is_file():
                files[f"usr/share/{path.relative_to(share)}"] = File(path.read_bytes())
    manual = [path for path in files if path.startswith("usr/share/man/")]
    pages = {f"{path}.gz": File(packed(files.pop(path).content)) for path in manual}
    plugin = "usr/share/man/man1/gpuhook-device-plugin.1.gz"
    pages.pop(plugin)
    return files | pages


def settings(release: Release) -> Files:
    """Return the settings file, in which every setting is a comment."""
    return {CONFIG: File((release.checkout / "gpuhook/schemas/config.yaml").read_bytes())}


def toolkit_front(release: Release) -> str:
    """Return the path of nvidia-ctk, to which gpuhook-nvidia-compat has a link."""
    return f"{release.library}/nvidia-ctk"


def bindings() -> Path:
    """Return the module of NVML's bindings; exit without one."""
    found = find_spec("pynvml")
    if found is None or found.origin is None:
        sys.exit(
            f"{sys.executable} has no pynvml, which goes into the package: install nvidia-ml-py"
        )
    return Path(found.origin)


def bindings_licence() -> str:
    """Return the licence of NVML's bindings, which is at the top of their file."""
    lines = []
    for line in bindings().read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("##"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).rstrip() + "\n"


def _compat(release: Release) -> Files:
    files = {}
    for path in sorted((PACKAGING / "compat").iterdir()):
        # The same for programs of each interpreter: a link to those that name one.
        link = path.readlink().stem if path.is_symlink() else ""
        if path.name == "nvidia-ctk":
            link = os.path.relpath(toolkit_front(release), "usr/bin")
        files[f"usr/bin/{path.name}"] = File(b"", link=link) if link else program(release, path)
    page = "gpuhook-nvidia-compat.1.gz"
    for name in [path.rpartition("/")[2] for path in files]:
        files[f"usr/share/man/man1/{name}.1.gz"] = File(b"", link=page)
    return files


def _manual(release: Release) -> Files:
    """Return the handwritten manual pages and the plugin's, compressed."""
    from gpuhook.cli import manual

    pages = {path.name: path.read_bytes() for path in sorted((HERE / "manual").iterdir())}
    plugin = "gpuhook-device-plugin.1"
    pages[plugin] = manual.pages()[plugin].encode()
    return {
        name: File(packed(filled(release, page.decode()).encode())) for name, page in pages.items()
    }


def _owner(page: str) -> str:
    """Return the package of a handwritten manual page."""
    stem = page.removesuffix(".1")
    return stem if stem in ("gpuhook-device-plugin", "gpuhook-nvidia-compat") else "gpuhook-runtime"
