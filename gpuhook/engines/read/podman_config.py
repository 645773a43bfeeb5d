# SPDX-License-Identifier: Apache-2.0
"""Podman's containers.conf and its drop-ins, see containers.conf(5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.engines.read import toml_document
from gpuhook.engines.read.engine_config import (
    CDI_DIRS,
    EngineConfiguration,
    Runtime,
    Trouble,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.engines.read.toml_document import TomlFile

VENDOR = "/usr/share/containers/containers.conf"
PATH = "/etc/containers/containers.conf"
OF_A_USER = ".config/containers/containers.conf"  # below the home directory
HAS_CDI = (4, 1)
# Since which podman; 4.3 (it refuses 0.6.0: "invalid version") and 5 were tried.
_READS = (((5,), "1.0.0"), ((4, 7), "0.6.0"), ((4, 3), "0.5.0"), ((), "0.4.0"))
# oci-hooks(5): a file in the later directory hides one of the same name in the earlier.
HOOK_DIRS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
RUNTIMES = ("engine", "runtimes")


@dataclass(frozen=True, slots=True)
class Podman:
    """Podman's configuration, and its directories of OCI hooks.

    Without hooks_dir in a file, root's podman has default directories, a user's podman none.
    """

    configuration: EngineConfiguration
    hook_dirs: tuple[str, ...]
    says_hook_dirs: bool = False


def read(files: ConfigFiles, home: str | None = None) -> Podman:
    """Return the configuration of root's podman, or of the user's with `home`. Raises OSError.

    A later file replaces the values of earlier ones.
    """
    found, trouble = toml_document.read_files(files, _paths(files, home))
    merged: dict[str, Any] = {}
    runtimes: dict[str, Runtime] = {}
    for file in found:
        trouble += _type_problems(file)
        merged |= toml_document.table(file.document, "engine")
        runtimes |= _runtimes(file)
    configuration = EngineConfiguration(
        engine="podman",
        files=tuple(one.path for one in found),
        runtimes=runtimes,
        default=toml_document.text(merged.get("runtime")) or "crun",
        cdi_enabled=True,
        cdi_dirs=toml_document.texts(merged.get("cdi_spec_dirs")) or CDI_DIRS,
        trouble=tuple(trouble),
    )
    directories = toml_document.texts(merged.get("hooks_dir"))
    default = HOOK_DIRS if home is None else ()
    return Podman(configuration, directories or default, bool(directories))


def has_cdi(version: Version | None) -> bool:
    """Return whether a podman applies CDI devices; True for an unknown version."""
    return version is None or version >= HAS_CDI


def newest_cdi(version: Version) -> str:
    """Return the newest version of CDI whose specs a podman reads; it skips newer ones."""
    return next(cdi for since, cdi in _READS if version >= since)


def _paths(files: ConfigFiles, home: str | None) -> list[str]:
    found = [VENDOR]
    for main in (PATH, *([f"{home}/{OF_A_USER}"] if home else [])):
        drop_ins = f"{main}.d"
        names = [name for name in files.names(drop_ins) if name.endswith(".conf")]
        found += [main, *(f"{drop_ins}/{name}" for name in names)]
    return found


def _type_problems(file: TomlFile) -> Iterator[Trouble]:
    """Yield the values of a wrong type."""
    yield from toml_document.no_tables(file, RUNTIMES)
    yield from toml_document.no_texts(file, ("engine", "hooks_dir"))
    for name, value in toml_document.table(file.document, *RUNTIMES).items():
        if not isinstance(value, list):
            problem = f"has a runtime {name} that is not a list of paths"
            yield Trouble(file.place(*RUNTIMES, name), problem)


def _runtimes(file: TomlFile) -> dict[str, Runtime]:
    runtimes = {}
    for name, value in toml_document.table(file.document, *RUNTIMES).items():
        paths = toml_document.texts(value)
        path, place = paths[0] if paths else "", file.place(*RUNTIMES, name)
        runtimes[name] = Runtime(name, path, place, "oci", {"paths": paths})
    return runtimes
