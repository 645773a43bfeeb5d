# SPDX-License-Identifier: Apache-2.0
"""Reads opaque parameters of device classes and claims, strictly. Pure.

The API server does not check them. An unknown key, a value of another type and a value that gpuhook
cannot apply are problems: users would rely on a setting that the driver ignores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.grammar import Section
from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, ValueKind, one_of, shown
from gpuhook.dra.claims.settings import gpu_config
from gpuhook.dra.claims.settings.gpu_config import (
    OWN,
    OWN_KIND,
    OWN_VERSION,
    ConfigKind,
    DeviceSettings,
)
from gpuhook.errors import printable
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MAX_SIZE = 10 << 10  # bytes, of the API server
_HEAD = ("apiVersion", "kind")
# The paths of the entries in the specs of the objects.
_ENTRIES = {
    "DeviceClass": ("spec", "config"),
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
}


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """What is wrong at a path of an object: "DeviceClass shared", "ResourceClaim team/mine"."""

    owner: str
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.owner, printable(self.path, 200), self.message)))


@dataclass(frozen=True, slots=True)
class ReadParameters:
    """The settings of one entry, and its kind; None with problems, or of another program."""

    settings: DeviceSettings | None = None
    kind: ConfigKind = OWN
    problems: tuple[ConfigProblem, ...] = ()


def read(parameters: object, owner: str, path: str) -> ReadParameters:
    """Return the settings of the parameters at `path` of an object."""
    found = list(_problems(parameters, path))
    if not found and isinstance(parameters, dict):
        kind = _kind(parameters)
        values = {name: value for name, value in parameters.items() if name not in _HEAD}
        checked = _Checked()
        parsed = checked.section(values, kind.section, path)
        excluded = None if checked.found else gpu_config.contradiction(parsed)
        if excluded is not None:
            checked.add(f"{path}.{excluded[0]}", excluded[1])
        if not checked.found:
            return ReadParameters(kind.section.built(parsed), kind)
        found = checked.found
    return ReadParameters(problems=tuple(ConfigProblem(owner, *one) for one in found))


def problems(document: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the problems of the parameters for gpuhook's drivers in an object of the API.

    It is a DeviceClass, ResourceClaim or ResourceClaimTemplate as the API server has it; another
    object has none.
    """
    place = _ENTRIES.get(str(document.get("kind")), ())
    entries: Any = document if place else None
    for name in place:
        entries = entries.get(name) if isinstance(entries, dict) else None
    drivers = {vendor.dra_driver for vendor in vendors()}
    found: list[ConfigProblem] = []
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        opaque = entry.get("opaque") if isinstance(entry, dict) else None
        if isinstance(opaque, dict) and opaque.get("driver") in drivers:
            path = f"{'.'.join(place)}[{number}].opaque.parameters"
            found += read(opaque.get("parameters"), owner_of(document), path).problems
    return found


def owner_of(document: Mapping[str, Any]) -> str:
    """Return an object as problems name it."""
    metadata = document.get("metadata")
    named: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    name = named.get("name") or named.get("generateName") or "without a name"
    namespace = f"{named['namespace']}/" if named.get("namespace") else ""
    return printable(f"{document.get('kind')} {namespace}{name}", 320)


def _known_kinds() -> dict[tuple[str, str], ConfigKind]:
    versions = [vendor.dra_config_version for vendor in vendors() if vendor.dra_config_version]
    found = {(OWN_VERSION, OWN_KIND): OWN}
    for version in versions:
        found |= {(version, name): kind for name, kind in gpu_config.OF_VENDOR.items()}
    return found


def _kind(parameters: Mapping[str, object]) -> ConfigKind:
    return _known_kinds()[str(parameters["apiVersion"]), str(parameters["kind"])]


def _problems(parameters: object, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield why the parameters are no object of a known kind."""
    if not isinstance(parameters, dict):
        yield path, f"must be a mapping, found {shown(parameters)}", ""
        return
    try:
        size = len(json.dumps(parameters, ensure_ascii=False).encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):  # of a YAML file, or nested too deeply
        yield path, "is not JSON as the API server takes it", ""
        return
    if size > MAX_SIZE:
        yield path, f"has {size} bytes, and the API server takes at most {MAX_SIZE}", ""
        return
    known = _known_kinds()
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    versions = tuple(dict.fromkeys(own for own, _ in known))
    if not isinstance(version, str) or version not in versions:
        yield f"{path}.apiVersion", f"must be {one_of(versions)}, found {shown(version)}", ""
        return
    kinds = tuple(name for (own, name), one in known.items() if own == version and not one.refusal)
    if not isinstance(kind, str) or kind not in kinds:
        same = known.get((version, str(kind)))
        reason = same.refusal if same is not None else ""
        yield f"{path}.kind", f"must be {one_of(kinds)}, found {shown(kind)}", reason


class _Checked:
    """Checks values, and collects what is wrong as (path, message, hint)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []

    def add(self, path: str, message: str, hint: str = "") -> None:
        self.found.append((path, message, hint))

    def section(self, values: object, section: Section, path: str) -> dict[str, Any]:
        """Return the right values of a mapping, parsed."""
        if not isinstance(values, dict):
            self.add(path, f"must be a mapping, found {shown(values)}")
            return {}
        parsed: dict[str, Any] = {}
        names = ", ".join(key.name for key in section.keys)
        for name, value in values.items():
            key = section.key(name) if isinstance(name, str) else None
            if key is None:
                self.add(f"{path}.{name}", "unknown key", f"the keys are {names}")
                continue
            here = f"{path}.{name}"
            if isinstance(key.kind, Section):
                parsed[name] = self.section(value, key.kind, here)
            elif isinstance(key.kind, ValueKind):
                self._value(key.kind, value, here, parsed, name)
        for key in section.keys:
            if key.required and key.name not in values:
                self.add(f"{path}.{key.name}", "is missing")
        return parsed

    def _value(
        self, kind: ValueKind, value: object, path: str, parsed: dict[str, Any], name: str
    ) -> None:
        try:
            parsed[name] = kind.parse(value)
        except UnfitError as error:
            at = path if error.index is None else f"{path}[{error.index}]"
            self.add(at, error.message, error.hint)
