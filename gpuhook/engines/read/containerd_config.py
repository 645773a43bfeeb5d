# SPDX-License-Identifier: Apache-2.0
"""containerd's configuration, of every version, merged as this containerd merges it.

Up to 2.0, a later file replaces the whole table of a plugin; from 2.1 on, tables are merged. A
containerd 2.x migrates older files to its own version first.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from typing import Any

from gpuhook.engines.read import nri_config, toml_document, unit_flags
from gpuhook.engines.read.containerd_files import (
    CRI_KEYS,
    CRI_OF_1,
    CRI_OF_2,
    CRI_OF_3,
    File,
    is_of_1,
    read_all,
)
from gpuhook.engines.read.engine_config import (
    CDI_DIRS,
    ConfigPlace,
    EngineConfiguration,
    Runtime,
    Trouble,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version

PATH = "/etc/containerd/config.toml"
RUNC = "io.containerd.runc.v2"
OLD_SHIM = "io.containerd.runtime.v1.linux"  # its program is in the plugin's table
HAS_CDI = (1, 7)  # the first containerd with enable_cdi
CDI_BY_DEFAULT = (2,)
MERGES_PLUGINS = (2, 1)
# A valid pattern of Go's path.Match: a class is not empty, and is closed.
_CHARACTER = r"(?:\\.|[^]\\-])"
_CLASS = rf"\[(?:\^|(?!\^))(?:{_CHARACTER}(?:-{_CHARACTER})?)+\]"
_PATTERN = re.compile(rf"(?:{_CLASS}|\\.|[^[\\])*", re.DOTALL)
CHECKS_VERSIONS = (2, 3)  # refuses a drop-in with a later version than the first file's


@dataclass(frozen=True, slots=True)
class Ignored:
    """A runtime below a key that containerd does not read, or one that a later file replaces.

    `key` is the plugin's key of the runtime, `by` the file that replaces it, "" for a wrong key.
    """

    runtime: Runtime
    key: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Containerd:
    """A containerd's configuration. `root` is the file in its command line.

    `daemon` is its version, None if unknown. `files` are that file and its imports. `key` is the
    plugin's key that containerd reads, `cri` its table. `plugins` has the tables of all plugins.
    """

    root: str
    daemon: Version | None
    files: tuple[File, ...]
    configuration: EngineConfiguration
    key: str
    cri: Mapping[str, Any]
    ignored: tuple[Ignored, ...]
    plugins: Mapping[str, Any]

    @property
    def nri(self) -> nri_config.NriConfig:
        """Its NRI."""
        return nri_config.of_containerd(self.plugins, self.disabled, self.daemon, of_1=self.is_of_1)

    @property
    def version(self) -> int:
        """The version of the file in the command line."""
        return self.files[0].version if self.files else 1

    @property
    def is_of_1(self) -> bool:
        """Whether it is a containerd 1.x."""
        return is_of_1(self.daemon, self.version)

    @property
    def disabled(self) -> tuple[str, ...]:
        """The plugins that any file disables."""
        return tuple(
            name
            for file in self.files
            for name in toml_document.texts(file.document.get("disabled_plugins"))
        )

    @property
    def imports(self) -> tuple[str, ...]:
        """The patterns that the files import."""
        return tuple(pattern for file in self.files for pattern in file.imports)

    @property
    def has_cri(self) -> bool:
        """Whether the CRI plugin is enabled, which a kubelet needs."""
        return not set(CRI_KEYS).intersection(self.disabled)

    @property
    def knows_cdi(self) -> bool:
        """Whether its version has CDI; True for an unknown version."""
        return self.daemon is None or self.daemon >= HAS_CDI

    @property
    def has_cdi(self) -> bool:
        """Whether it applies CDI devices: by enable_cdi, else by its version."""
        enabled = self.configuration.cdi_enabled
        return self.knows_cdi and (not self.is_of_1 if enabled is None else enabled)

    def keys_in(self, file: File) -> tuple[str, ...]:
        """Return the plugin's keys that containerd reads in a file; the first has precedence."""
        return (self.key,) if self.is_of_1 else _keys_of_2(file)


def read(files: ConfigFiles, root: str = PATH, daemon: Version | None = None) -> Containerd:
    """Return the configuration that a containerd of version `daemon` reads at `root`.

    Without `daemon`, the version of the files decides. Raises OSError.
    """
    found, trouble = read_all(files, root, daemon)
    of_1 = is_of_1(daemon, found[0].version if found else 1)
    merged_version = max((file.version for file in found if "version" in file.document), default=1)
    key = (CRI_OF_1 if merged_version == 1 else CRI_OF_2) if of_1 else CRI_OF_3
    merges = daemon >= MERGES_PLUGINS if daemon else not of_1
    plugins = _merged([_migrated(file, of_1) for file in found], merges)
    cri = plugins.get(key, {})
    runtimes = _runtimes(found, cri, plugins, keeps_default=not of_1)
    engine = toml_document.table(cri, "containerd")
    enabled = cri.get("enable_cdi")
    configuration = EngineConfiguration(
        engine="containerd",
        files=tuple(file.path for file in found),
        runtimes=runtimes,
        default=toml_document.text(engine.get("default_runtime_name")) or "runc",
        cdi_enabled=enabled if isinstance(enabled, bool) else None,
        cdi_dirs=toml_document.texts(cri.get("cdi_spec_dirs")) or CDI_DIRS,
        trouble=(*trouble, *_version_trouble(found, daemon, merged_version)),
    )
    made = Containerd(root, daemon, found, configuration, key, cri, (), plugins)
    return replace(made, ignored=tuple(_ignored(made)))


def configuration_file(argv: Sequence[str]) -> str:
    """Return the file in a containerd's command line, "" without such an option."""
    return unit_flags.main_file(unit_flags.command_options(argv))


def covers(pattern: str, key: str) -> bool:
    """Return whether a pattern of pod_annotations covers an annotation's key.

    For a `key` that ends in "/": whether it covers any key with this prefix. containerd uses
    path.Match, in which `*` does not match a "/"; a malformed pattern matches nothing. Of a pattern
    with a class or an escape, only the text before it is compared.
    """
    if not _PATTERN.fullmatch(pattern):
        return False
    plain = pattern.partition("[")[0].partition("\\")[0]
    if plain != pattern:
        pattern = plain + "*"
        if "/" not in plain:
            return fnmatch.fnmatchcase(key, pattern)
    parts, names = pattern.split("/"), key.split("/")
    return len(parts) == len(names) and all(
        fnmatch.fnmatchcase(name, part) if name else bool(part)
        for part, name in zip(parts, names, strict=True)
    )


def _keys_of_2(file: File) -> tuple[str, ...]:
    """Return the keys from which a containerd 2.x migrates; the first has precedence."""
    keys = {1: (CRI_OF_2, CRI_OF_1, CRI_OF_3), 2: (CRI_OF_2, CRI_OF_3)}
    return keys.get(file.version, (CRI_OF_3,))


def _migrated(file: File, of_1: bool) -> dict[str, dict[str, Any]]:
    """Return the plugins' tables by the keys of this containerd."""
    plugins = {
        name: value
        for name, value in toml_document.table(file.document, "plugins").items()
        if isinstance(value, dict)
    }
    written = [key for key in _keys_of_2(file) if key in plugins]
    if written and not of_1:
        plugins[CRI_OF_3] = plugins[written[0]]
    return plugins


def _merged(tables: Iterable[Mapping[str, Any]], merges: bool) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            merged[name] = _joined(merged.get(name), value) if merges else value
    return merged


def _joined(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _joined(old.get(name), value) for name, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        return old + [one for one in new if one not in old]
    return new


def _runtimes(
    found: tuple[File, ...],
    cri: Mapping[str, Any],
    plugins: Mapping[str, Any],
    *,
    keeps_default: bool,
) -> dict[str, Runtime]:
    """Return the runtimes; a 1.x drops its built-in `runc` if others are registered."""
    shim = toml_document.text(
        toml_document.table(plugins, OLD_SHIM).get("runtime")
    ) or toml_document.text(toml_document.table(plugins, "linux").get("runtime"))
    written = toml_document.table(cri, "containerd", "runtimes")
    runtimes = {
        name: _runtime(name, value, _runtime_place(found, name), shim)
        for name, value in written.items()
        if isinstance(value, dict)
    }
    if keeps_default or not runtimes:
        root = found[0].path if found else ""
        runtimes.setdefault("runc", Runtime("runc", "", ConfigPlace(root), RUNC))
    return runtimes


def _runtime(name: str, value: Mapping[str, Any], where: ConfigPlace, shim: str = "") -> Runtime:
    # containerd's TOML reader ignores the case of option names.
    options = {key.lower(): one for key, one in toml_document.table(value, "options").items()}
    kind = toml_document.text(value.get("runtime_type"))
    path = (
        toml_document.text(options.get("binaryname"))
        or toml_document.text(options.get("runtime"))
        or toml_document.text(value.get("runtime_engine"))
        or (shim if kind == OLD_SHIM else "")
    )
    return Runtime(name, path, where, kind, {**value, "options": options})


def _runtime_place(found: tuple[File, ...], name: str) -> ConfigPlace:
    """Return the place of a runtime in the last file that has it."""
    for file in reversed(found):
        for key in CRI_KEYS:
            if name in toml_document.table(file.document, "plugins", key, "containerd", "runtimes"):
                return file.place("plugins", key, "containerd", "runtimes", name)
    return ConfigPlace(found[0].path if found else "")


def _ignored(read: Containerd) -> Iterable[Ignored]:
    for file in read.files:
        for written in CRI_KEYS:
            table = toml_document.table(file.document, "plugins", written, "containerd", "runtimes")
            for name, value in table.items():
                if name in read.configuration.runtimes or not isinstance(value, dict):
                    continue
                where = file.place("plugins", written, "containerd", "runtimes", name)
                keys = read.keys_in(file)
                by = _last_with(read.files, keys) if written in keys else ""
                yield Ignored(_runtime(name, value, where), written, by)


def _last_with(found: tuple[File, ...], keys: tuple[str, ...]) -> str:
    for file in reversed(found):
        if any(toml_document.table(file.document, "plugins", key) for key in keys):
            return file.path
    return ""


def _version_trouble(
    found: tuple[File, ...], daemon: Version | None, merged: int
) -> Iterable[Trouble]:
    """Yield the versions that containerd refuses, in the words of its errors."""
    if not found:
        return
    if is_of_1(daemon, found[0].version):
        if merged > 1:
            yield from _bare_names(found)
        return
    newest = 4 if daemon is None or daemon >= (2, 2) else 3
    for file in found:
        if file.version > newest:
            reason = f"has version = {file.version}, but this containerd reads up to {newest}"
            yield Trouble(file.place("version"), reason)
    root = found[0].version
    for file in found[1:]:
        if daemon and daemon >= CHECKS_VERSIONS and file.version > root:
            reason = f"drop-in config version {file.version} higher than root config version {root}"
            yield Trouble(file.place("version"), reason)


def _bare_names(found: tuple[File, ...]) -> Iterable[Trouble]:
    for file in found:
        for name in toml_document.table(file.document, "plugins"):
            if "." not in name:
                reason = f'has the plugin key "{name}", which version 2 does not permit'
                yield Trouble(file.place("plugins", name), reason)
