# SPDX-License-Identifier: Apache-2.0
"""CRI-O's configuration: crio.conf and its drop-ins, see crio.conf(5) and crio.conf.d(5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuhook.engines.read import nri_config, toml_document
from gpuhook.engines.read.engine_config import (
    CDI_DIRS,
    ConfigPlace,
    EngineConfiguration,
    Runtime,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version

PATH = "/etc/crio/crio.conf"
DROP_INS = "/etc/crio/crio.conf.d"
HOOK_DIRS = ("/usr/share/containers/oci/hooks.d",)
RUNTIMES = ("crio", "runtime", "runtimes")


@dataclass(frozen=True, slots=True)
class Crio:
    """CRI-O's configuration, and its directories of OCI hooks.

    `run_root` and `storage_root` are those of its storage, "" for the defaults of
    containers/storage.
    """

    configuration: EngineConfiguration
    hook_dirs: tuple[str, ...]
    has_selinux: bool
    run_root: str = ""
    storage_root: str = ""
    nri_table: Mapping[str, Any] = field(default_factory=dict)

    def nri(self, daemon: Version | None) -> nri_config.NriConfig:
        """Return its NRI; `daemon` is its version, None if unknown."""
        return nri_config.of_crio(self.nri_table, daemon)


_OWN = ("crun", "runc")


def read(files: ConfigFiles, main: str = PATH, drop_ins: str = DROP_INS) -> Crio:
    """Return the configuration. Raises OSError.

    The drop-ins are applied after the main file, by name. Each value replaces that of an earlier
    file; runtimes are replaced one by one.
    """
    paths = (main, *(f"{drop_ins}/{name}" for name in files.names(drop_ins)))
    found, trouble = toml_document.read_files(files, paths)
    merged: dict[str, Any] = {}
    runtimes: dict[str, Runtime] = {}
    roots: dict[str, Any] = {}
    nri_table: dict[str, Any] = {}
    for file in found:
        trouble += toml_document.no_tables(file, RUNTIMES)
        merged |= toml_document.table(file.document, "crio", "runtime")
        roots |= toml_document.table(file.document, "crio")
        nri_table |= toml_document.table(file.document, *nri_config.CRIO_KEY)
        for name, value in toml_document.table(file.document, *RUNTIMES).items():
            if isinstance(value, dict):
                runtimes[name] = _runtime(name, value, file.place(*RUNTIMES, name))
    default = toml_document.text(merged.get("default_runtime")) or _built_in(runtimes)
    # CRI-O keeps its built-in runtime in addition to those of the files (pkg/config,
    # DefaultConfig). A default runtime of another name must be in a file.
    own = default if default in _OWN else _built_in(runtimes)
    runtimes.setdefault(own, Runtime(own, "", ConfigPlace(main), "oci"))
    configuration = EngineConfiguration(
        engine="crio",
        files=tuple(one.path for one in found),
        runtimes=runtimes,
        default=default,
        cdi_enabled=True,  # always, since 1.23
        cdi_dirs=toml_document.texts(merged.get("cdi_spec_dirs")) or CDI_DIRS,
        trouble=tuple(trouble),
    )
    hook_dirs = toml_document.texts(merged.get("hooks_dir")) or HOOK_DIRS
    return Crio(
        configuration,
        hook_dirs,
        merged.get("selinux") is True,
        run_root=toml_document.text(roots.get("runroot")),
        storage_root=toml_document.text(roots.get("root")),
        nri_table=nri_table,
    )


def _built_in(runtimes: Mapping[str, Runtime]) -> str:
    """Return the default runtime if no file sets it: crun since 1.31, runc before."""
    return "runc" if "runc" in runtimes and "crun" not in runtimes else "crun"


def _runtime(name: str, value: Mapping[str, Any], place: ConfigPlace) -> Runtime:
    kind = toml_document.text(value.get("runtime_type"))
    return Runtime(name, toml_document.text(value.get("runtime_path")), place, kind, value)
