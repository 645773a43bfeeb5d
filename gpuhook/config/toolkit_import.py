# SPDX-License-Identifier: Apache-2.0
"""Import NVIDIA's config.toml into gpuhook's settings, with a remark on each key that is skipped.

Source of the keys, their types and defaults: NVIDIA Container Toolkit 1.20, `nvidia-ctk config
default`. Default values of the toolkit are skipped: gpuhook has the same defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from gpuhook.config.toolkit_keys import without_counterpart
from gpuhook.device_plugin.config.grammar.value_kinds import shown
from gpuhook.doctor.facts import toolkit_settings
from gpuhook.engines.read import toml_document
from gpuhook.errors import fault, printable
from gpuhook.host import documents
from gpuhook.host.hot import settings
from gpuhook.node import settings_file
from gpuhook.vendors import catalogue

_CLI, _RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"
# Keys with the same values in both files: key of the toolkit -> section and key of gpuhook.
_SAME = {
    "disable-require": "request.disableRequirements",
    "accept-nvidia-visible-devices-envvar-when-unprivileged": "request.acceptEnvWhenUnprivileged",
    "accept-nvidia-visible-devices-as-volume-mounts": "request.acceptVolumeMounts",
    f"{_CLI}.root": "driver.root",
    f"{_RUNTIME}.runtimes": "runtime.lowLevelRuntimes",
    f"{_RUNTIME}.modes.cdi.spec-dirs": "cdi.specDirs",
    f"{_RUNTIME}.modes.cdi.default-kind": "cdi.defaultKind",
    f"{_RUNTIME}.modes.cdi.annotation-prefixes": "cdi.annotationPrefixes",
    f"{_RUNTIME}.modes.csv.compat-container-root": "generate.csvCompatContainerRoot",
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-feature-flags": "generate.featureFlags",
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-disable-hooks": "generate.disableHooks",
    "features.ignore-imex-channel-requests": "request.ignoreImexChannels",
}
# Keys whose value is a comma-separated list.
_LISTS = {
    "swarm-resource": "request.swarmResources",
    "supported-driver-capabilities": "request.driverCapabilities",
}
# A key with a value -> a list of gpuhook, and the entry that it gets.
_NO_GIDS, _NO_COMPAT = "no-additional-gids-for-device-nodes", "enable-cuda-compat"
_ENTRIES = {
    (f"features.{_NO_GIDS}", True): ("generate.featureFlags", _NO_GIDS),
    ("features.disable-cuda-compat-lib-hook", True): ("generate.disableHooks", _NO_COMPAT),
    (f"{_RUNTIME}.modes.legacy.cuda-compat-mode", "disabled"): (
        "generate.disableHooks",
        _NO_COMPAT,
    ),
}
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Imported:
    """gpuhook's settings, and remarks on the keys that are skipped, by line."""

    document: dict[str, dict[str, Any]]
    remarks: tuple[str, ...]


def import_file(path: str) -> Imported:
    """Import the toolkit's file at `path`, "-" for standard input. Raises GH1534, GH1310."""
    try:
        content = documents.read_head(path, _MAX_SIZE + 1)
        if len(content) > _MAX_SIZE:
            raise fault("GH1534", path=path, reason="it is larger than 1 MiB")
        document = toml_document.parsed(content)
    except OSError as error:
        raise fault("GH1534", path=path, reason=error.strerror or error) from error
    except toml_document.UnreadableTomlError as error:
        line = f"line {error.line}: " if error.line else ""
        raise fault("GH1534", path=path, reason=line + error.reason) from error
    return import_settings(toolkit_settings.ToolkitSettings(path, document, content))


def import_settings(found: toolkit_settings.ToolkitSettings) -> Imported:
    """Import the toolkit's settings."""
    work = _Import(found)
    for key, value in toolkit_settings.leaves(found.document):
        work.take(key, value)
    work.drop_invalid()
    return Imported(work.document, tuple(remark for _, remark in sorted(work.remarks)))


def text(found: Imported, path: str) -> str:
    """Return the settings file, with the remarks as comments."""
    lines = [f"# gpuhook settings, by `gpuhook config import {printable(path, 200)}`."]
    if found.remarks:
        lines.append("# Not imported:")
        lines += [f"#   {printable(remark, 1000)}" for remark in found.remarks]
    if not found.document:
        lines.append("# All other keys have gpuhook's defaults.")
        return "\n".join(lines) + "\n"
    # Only ASCII: characters that other readers take for a line break (U+0085) are escaped.
    body: str = yaml.safe_dump(found.document, sort_keys=False, width=100)
    return "\n".join(lines) + "\n" + body


class _Import:
    """An import: the document, the source of each of its keys, and the remarks."""

    def __init__(self, found: toolkit_settings.ToolkitSettings) -> None:
        self._found = found
        self._sources: dict[tuple[str, str], str] = {}
        self._wrong = dict(found.wrong())
        self._unknown = dict(found.unknown())
        self._properties = settings_file.schema()["properties"]
        self.document: dict[str, dict[str, Any]] = {}
        self.remarks: list[tuple[int, str]] = []

    def take(self, key: str, value: Any) -> None:
        """Import a key, or add a remark."""
        if key in self._unknown:
            near = self._unknown[key]
            advice = f"did you mean {near}?" if near else "remove it"
            self._remark(key, f"the toolkit has no such key, and ignores it: {advice}")
        elif key in self._wrong:
            self._remark(key, f"it {self._wrong[key]}, but is {shown(value)}: correct it")
        elif (key, value if isinstance(value, (bool, str)) else None) in _ENTRIES:
            own, entry = _ENTRIES[key, value]
            section, name = own.split(".")
            held = self.document.get(section, {}).get(name, [])
            if entry not in held:
                self._set(key, own, [*held, entry])
        elif key in _SAME:
            self._set(key, _SAME[key], value)
        elif key in _LISTS:
            self._set(key, _LISTS[key], self._listed(_LISTS[key], value))
        elif key == f"{_RUNTIME}.mode" and value == "csv":
            self._set(key, "generate.mode", value)
        else:
            why = without_counterpart(key, value)
            if why:
                self._remark(key, why)

    def drop_invalid(self) -> None:
        """Remove values that gpuhook's settings do not permit, with a remark."""
        for path, remark in settings_file.faults_of(self.document):
            section, key = str(path[0]), str(path[1])
            source = self._sources.get((section, key))
            if source is not None and key in self.document.get(section, {}):
                self._remark(source, f"{section}.{key} does not permit this value: {remark}")
                del self.document[section][key]
        self.document = {name: keys for name, keys in self.document.items() if keys}

    def _set(self, key: str, path: str, value: Any) -> None:
        section, own = path.split(".")
        if value in ("", []) or value == _default(section, own):
            return
        known = self._properties.get(section, {}).get("properties", {}).get(own)
        if known is None or ("enum" in known and value not in known["enum"]):
            what = f"no {own} {value}" if known else f"no option for it ({section}.{own})"
            self._remark(key, f"gpuhook generate-cdi has {what}: omit it")
            return
        self._sources[section, own] = key
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = list(dict.fromkeys(value))
        self.document.setdefault(section, {})[own] = value

    def _listed(self, path: str, value: str) -> list[str]:
        """Return the words of a comma-separated list; [] for all words of a key, the default."""
        found = list(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))
        section, own = path.split(".")
        known = self._properties[section]["properties"][own]["items"].get("enum")
        is_all = known and ("all" in found or set(found) == set(known))
        return [] if is_all else found

    def _remark(self, key: str, remark: str) -> None:
        line = toml_document.line_of(self._found.content, key.split("."))
        place = f"line {line}: " if line else ""
        self.remarks.append((line, f"{place}{printable(key, 100)}: {remark}"))


def _default(section: str, own: str) -> object:
    attribute = settings.KEYS.get((section, own))
    if attribute == "default_kind":
        return catalogue.default_kind()
    return getattr(settings.Settings(), attribute) if attribute else None
