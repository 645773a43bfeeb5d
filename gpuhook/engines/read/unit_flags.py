# SPDX-License-Identifier: Apache-2.0
"""The flags in command lines of engines: of units, and of processes.

Units are read as systemd reads them, see systemd.service(5) and systemd.exec(5).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise

from gpuhook.engines.read.engine_config import ConfigPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuhook.engines.read.config_files import ConfigFiles

DOCKER = "docker.service"
_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# Below the home directory.
_USER_DIRECTORIES = (".config/systemd/user", ".local/share/systemd/user")
_ALL_USERS = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
_VARIABLE = re.compile(r"(.*?)\$(?:\{(\w+)\}|(\w+))\Z")


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag without its dashes, its value ("" for none), and its place in a unit file."""

    name: str
    value: str
    where: ConfigPlace


def command_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the flags of a command line with their values; of a repeated one, the last."""
    return {one.name: one.value for one in _flags([(word, ConfigPlace("")) for word in arguments])}


def unit_options(files: ConfigFiles, unit: str) -> dict[str, str]:
    """Return the flags in a unit's command line with their values. Raises OSError."""
    return {one.name: one.value for one in unit_flags(files, unit=unit)}


def main_file(options: Mapping[str, str]) -> str:
    """Return the main configuration file in the flags of containerd or CRI-O, "" for none."""
    return options.get("config") or options.get("c", "")


def unit_flags(files: ConfigFiles, home: str | None = None, unit: str = DOCKER) -> tuple[Flag, ...]:
    """Return the flags in a unit's command line, in order. Raises OSError."""
    words: list[tuple[str, ConfigPlace]] = []
    variables: dict[str, tuple[str, ConfigPlace]] = {}
    environment_files: list[str] = []
    for path in _unit_files(files, home, unit):
        for key, value, where in _settings(path, files.read(path) or b""):
            if key == "EnvironmentFile":
                environment_files.append(value.removeprefix("-"))
                if not value:
                    environment_files.clear()
            elif key == "Environment":
                variables.update(_assignments(value, where))
                if not value:
                    variables.clear()
            elif key == "ExecStart":
                words = [(word, where) for word in _split(value)] if value else []
    return tuple(_flags(list(_expanded(words, variables | _variables(files, environment_files)))))


def _unit_files(files: ConfigFiles, home: str | None, unit: str) -> list[str]:
    places = (
        _DIRECTORIES if home is None else (*(f"{home}/{p}" for p in _USER_DIRECTORIES), *_ALL_USERS)
    )
    main = [f"{place}/{unit}" for place in places if unit in files.names(place)][:1]
    drop_ins: dict[str, str] = {}
    for place in reversed(places):
        for name in files.names(f"{place}/{unit}.d"):
            if name.endswith(".conf"):
                drop_ins[name] = f"{place}/{unit}.d/{name}"
    return [*main, *(drop_ins[name] for name in sorted(drop_ins))]


def _settings(path: str, content: bytes) -> Iterator[tuple[str, str, ConfigPlace]]:
    lines = content.decode("utf-8", "replace").splitlines()
    number = 0
    while number < len(lines):
        first, text = number + 1, lines[number].strip()
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = f"{text[:-1]} {lines[number].strip()}"
        number += 1
        if text and text[0] not in "#;[":
            key, _, value = text.partition("=")
            yield key.strip(), value.strip(), ConfigPlace(path, first)


def _assignments(value: str, where: ConfigPlace) -> dict[str, tuple[str, ConfigPlace]]:
    pairs = [one.partition("=") for one in _split(value)]
    return {name: (text, where) for name, _, text in pairs}


def _variables(files: ConfigFiles, paths: Sequence[str]) -> dict[str, tuple[str, ConfigPlace]]:
    """Return the variables in environment files; of a file that is named again, the last place."""
    found = {}
    for path in reversed(dict.fromkeys(reversed(paths))):
        for name, value, where in _settings(path, files.read(path) or b""):
            found[name] = " ".join(_split(value)), where
    return found


def _expanded(
    words: list[tuple[str, ConfigPlace]], variables: dict[str, tuple[str, ConfigPlace]]
) -> Iterator[tuple[str, ConfigPlace]]:
    for word, where in words:
        found = _VARIABLE.match(word)
        if found is None:
            yield word, where
            continue
        prefix, braced, bare = found.groups()
        value, place = variables.get(braced or bare, ("", where))
        for one in [prefix + value] if prefix else _split(value):
            yield one, place


def _flags(words: list[tuple[str, ConfigPlace]]) -> Iterator[Flag]:
    for (word, where), (after, _) in pairwise([*words, ("", ConfigPlace(""))]):
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            yield Flag(name, value if equals or after.startswith("-") else after, where)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
