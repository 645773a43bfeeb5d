# SPDX-License-Identifier: Apache-2.0
"""Where the configuration comes from: one file, or a directory of named ones, one of them chosen.

A directory is a mounted ConfigMap: the kubelet keeps the files in a directory of their own behind
the link `..data`, and renames a new link into its place. So a change of content shows as a change
of the directory, and never inside it.
"""

from __future__ import annotations

import errno
import json
import os
from binascii import crc32
from dataclasses import dataclass, field

from gpuhook.device_plugin.config import build as config_build
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding, errors
from gpuhook.device_plugin.config.grammar import yaml_tree as config_yaml
from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.config_reader import Override
    from gpuhook.device_plugin.config.configuration import Configuration

_LONGEST_NAME = 256
_MOST_LINKS = 8
LARGEST_READ = 4 * config_yaml.LARGEST  # bytes; past it a file is no longer read to be told so


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A `file`, or a `directory` and how one of its files is chosen; neither: all defaults."""

    file: str = ""
    directory: str = ""
    name_file: str = ""  # a file with the name, instead of a node label
    default_name: str = ""
    fallbacks: tuple[str, ...] = ("named", "single")  # of plugin_options.FALLBACKS


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which named configuration counts, "" for an empty one; a word on why it is not another."""

    name: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ExaminedConfig:
    """What a source has now; `configuration` is None when there is an error among the findings."""

    configuration: Configuration | None
    findings: tuple[ConfigFinding, ...]
    name: str  # of the chosen configuration in a directory, else ""
    path: str  # the file that was read, "" for none
    places: Mapping[str, tuple[int, int] | str] = field(default_factory=dict)  # of Reading


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration to serve. `digest`, for people, is the same for two that mean the same."""

    configuration: Configuration
    findings: tuple[ConfigFinding, ...]  # warnings
    name: str
    digest: str
    path: str = ""  # the file that was read, "" for none
    places: Mapping[str, tuple[int, int] | str] = field(default_factory=dict)  # of Reading

    def place(self, message: str) -> str:
        """Return where the entry is with which a message begins: its file, line and column."""
        where = self.places.get(message.partition(": ")[0])
        return f"{self.path}:{where[0]}:{where[1]}" if isinstance(where, tuple) else self.path


def load(
    source: ConfigSource,
    overrides: Mapping[str, Override] | None = None,
    label: str | None = None,
    *,
    current: str = "",
    strict: bool = False,
) -> LoadedConfig:
    """Return the configuration of a source; `examine` says what the arguments are.

    Raises GH1800 (it has errors; `examine` returns them all), GH1801 (the file cannot be read) and
    GH1802 (none of the named ones can be chosen).
    """
    found = examine(source, overrides, label, current=current, strict=strict)
    if found.configuration is None:
        wrong = errors(found.findings)
        count = "an error" if len(wrong) == 1 else f"{len(wrong)} errors, the first"
        place = found.path or "FILE"
        raise fault("GH1800", count=count, first=_without_severity(wrong[0]), path=place)
    made = digest(found.configuration)
    return LoadedConfig(
        found.configuration, found.findings, found.name, made, found.path, found.places
    )


def examine(
    source: ConfigSource,
    overrides: Mapping[str, Override] | None = None,
    label: str | None = None,
    *,
    current: str = "",
    strict: bool = False,
) -> ExaminedConfig:
    """Return what a source has now, errors included.

    `label` is the value of the node's label, None without one; `current` is the name that counts
    until now, and goes on when the label names none that there is. Raises GH1801 and GH1802.
    """
    name, path = "", source.file
    warnings: tuple[ConfigFinding, ...] = ()
    if not source.file and source.directory:
        named = _name_in(source.name_file) if source.name_file else label
        chosen = choose(source, named, names(source.directory), current)
        name, path = chosen.name, os.path.join(source.directory, chosen.name) if chosen.name else ""
        if chosen.warning:
            where = source.name_file or "the node's label"
            warnings = (ConfigFinding(WARNING, "", 0, 0, chosen.warning, "", where),)
    content = _content(path) if path else b""
    reading = config_reader.read(content, path, overrides, strict=strict)
    findings = warnings + reading.findings
    return ExaminedConfig(reading.configuration, findings, name, path, reading.places)


def choose(source: ConfigSource, label: str | None, known: list[str], current: str = "") -> Chosen:
    """Return which of the `known` names counts.

    A label that names none of them changes nothing: what is `current` goes on, or what a node
    without the label would get. Raises GH1802 when nothing is left.
    """
    if label and label in known:
        return Chosen(label)
    warning = f"{label!r} is none of the configurations ({_listed(known)})" if label else ""
    if warning and current in known:
        return Chosen(current, f"{warning}: {current} goes on")
    name = _unlabelled(source, known)
    if name is None:
        if source.default_name:
            reason = f"the default is to be {source.default_name}, and there is none of that name"
        else:
            reason = warning or "the node has no label and there is no default"
        raise fault("GH1802", directory=source.directory, reason=reason, known=_listed(known))
    return Chosen(name, f"{warning}: {name or 'an empty one'} counts" if warning else "")


def _unlabelled(source: ConfigSource, known: list[str]) -> str | None:
    """Return what counts on a node without the label; "" is an empty one, None is nothing."""
    if source.default_name:
        return source.default_name if source.default_name in known else None
    for strategy in source.fallbacks:
        if strategy == "named" and "default" in known:
            return "default"
        if strategy == "single" and len(known) == 1:
            return known[0]
        if strategy == "empty":
            return ""
    return None


def names(directory: str) -> list[str]:
    """Return the names of the configurations of a directory, sorted; raises GH1801."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_file())
    except OSError as error:
        raise fault("GH1801", path=directory, reason=error.strerror or error) from error


def watched(source: ConfigSource) -> tuple[str, ...]:
    """Return the directories in which a change may be one of the configuration, for inotify.

    Watch for what is created, moved, deleted and closed after writing there: a file that is
    replaced, a link to another file and a new `..data` all show in a directory. Ask again after
    each change: links may lead elsewhere.
    """
    directories = [source.directory] if source.directory and not source.file else []
    for file in (source.file, source.name_file):
        directories += _directories(file) if file else []
    return tuple(dict.fromkeys(directories))


def _directories(path: str) -> list[str]:
    """Return the directory of a file, and those that its links lead to: config-manager makes one.

    What a ConfigMap's `..data` leads to is left out: it is removed with its content.
    """
    found = []
    for _ in range(_MOST_LINKS):
        path = os.path.abspath(path)
        directory = os.path.dirname(path)
        if os.path.basename(directory).startswith(".."):
            break
        found.append(directory)
        try:
            path = os.path.join(directory, os.readlink(path))
        except OSError:  # no link, or nothing: the directory shows when there is one
            break
    return found


def digest(configuration: Configuration) -> str:
    """Return 8 hexadecimal digits that are the same for configurations that mean the same."""
    text = json.dumps(config_build.document(configuration), sort_keys=True)
    return f"{crc32(text.encode()):08x}"  # hashlib would bring 4 MB of OpenSSL


def _name_in(path: str) -> str | None:
    """Return the name that a file has, None for an empty or missing file."""
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return files.read(path, _LONGEST_NAME).decode("utf-8", "replace").strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault("GH1801", path=path, reason=error.strerror or error) from error


def _content(path: str) -> bytes:
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return files.read(path, 64 << 20)
    except OSError as error:
        raise fault("GH1801", path=path, reason=error.strerror or error) from error


def _listed(known: list[str]) -> str:
    return ", ".join(known) or "none at all"


def _without_severity(finding: ConfigFinding) -> str:
    """Return a finding in a sentence that says already that it is an error."""
    return str(finding).replace(f": {ERROR}: ", ": ", 1)
