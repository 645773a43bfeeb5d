# SPDX-License-Identifier: Apache-2.0
"""The source of the configuration: a file, or one of several named files in a directory.

A directory is a mounted ConfigMap: the kubelet keeps the files in another directory behind the link
`..data`, and replaces that link by rename. A change of content is therefore a change of the mounted
directory itself.
"""

from __future__ import annotations

import errno
import json
import os
from binascii import crc32
from dataclasses import dataclass, field

from gpuhook.device_plugin.config import config_reader, configuration
from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding, errors
from gpuhook.device_plugin.config.grammar import yaml_tree
from gpuhook.device_plugin.config.grammar.grammar import Option, flag
from gpuhook.device_plugin.config.grammar.value_kinds import DIRECTORY, FILE, NAME, ChoiceList
from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.config_reader import Override
    from gpuhook.device_plugin.config.configuration import Configuration

_LONGEST_NAME = 256
_LARGEST_FILE = 64 << 20
_MOST_LINKS = 8
LARGEST_READ = 4 * yaml_tree.LARGEST  # bytes; of a larger file only the size is reported


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A `file`, or a `directory` and the rule that selects one of its files; neither: defaults."""

    file: str = flag(
        FILE,
        "The configuration file. Without this file, all keys have their defaults.",
        "",
        option=Option("config-file", ("CONFIG_FILE",)),
    )
    directory: str = flag(
        DIRECTORY,
        "A directory of named configurations, such as a mounted ConfigMap. The node's label "
        "selects one of them.",
        "",
        option=Option("config-dir", ("GPUHOOK_CONFIG_DIR", "CONFIG_FILE_SRCDIR")),
    )
    name_file: str = flag(
        FILE,
        (
            "A file that contains the name of a configuration in --config-dir, instead of the "
            "node's label."
        ),
        "",
        option=Option("config-name-file"),
    )
    default_name: str = flag(
        NAME,
        "The configuration in --config-dir for nodes without the label.",
        "",
        option=Option("default-config", ("DEFAULT_CONFIG",)),
    )
    fallbacks: tuple[str, ...] = flag(
        ChoiceList(("named", "single", "empty"), may_be_empty=True),
        "How to select a configuration without a label and --default-config: named (the "
        "configuration called default), single (the only one) or empty (all defaults). The first "
        "strategy that finds a configuration is used.",
        ("named", "single"),
        option=Option("fallback-strategies", ("FALLBACK_STRATEGIES",)),
    )


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration to serve. `digest` is the same for two that have the same meaning."""

    configuration: Configuration
    findings: tuple[ConfigFinding, ...]  # warnings
    name: str  # of the configuration in a directory, else ""
    digest: str
    path: str = ""  # of the file, "" if there is none
    places: Mapping[str, tuple[int, int] | str] = field(default_factory=dict)  # of ConfigReading

    def place(self, message: str) -> str:
        """Return file, line and column of the key with which a message begins."""
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
    """Return the configuration of a source.

    `label` is the value of the node's label, None without one. `current` is the name of the active
    configuration, which remains active if the label names an unknown one. Raises GH1800 (it has
    errors), GH1801 (a file cannot be read) and GH1802 (no configuration can be selected).
    """
    name, path = "", source.file
    warnings: tuple[ConfigFinding, ...] = ()
    if not source.file and source.directory:
        named = _name_in(source.name_file) if source.name_file else label
        name, warning = choose(source, named, names(source.directory), current)
        path = os.path.join(source.directory, name) if name else ""
        if warning:
            where = source.name_file or "the node's label"
            warnings = (ConfigFinding(WARNING, "", 0, 0, warning, "", where),)
    content = _content(path, _LARGEST_FILE) if path else b""
    reading = config_reader.read(content, path, overrides, strict=strict)
    if reading.configuration is None:
        wrong = errors(reading.findings)
        count = "an error" if len(wrong) == 1 else f"{len(wrong)} errors, the first"
        first = str(wrong[0]).replace(f": {ERROR}: ", ": ", 1)  # the sentence has the word already
        raise fault("GH1800", count=count, first=first, path=path or "FILE")
    made = reading.configuration
    return LoadedConfig(made, warnings + reading.findings, name, digest(made), path, reading.places)


def choose(
    source: ConfigSource, label: str | None, known: list[str], current: str = ""
) -> tuple[str, str]:
    """Return the selected one of the `known` names, "" for an empty configuration, and a warning.

    If the label names an unknown configuration, `current` remains active, else the configuration of
    a node without the label. Raises GH1802 if none can be selected.
    """
    if label and label in known:
        return label, ""
    warning = f"{label!r} is not a configuration ({_listed(known)})" if label else ""
    if warning and current in known:
        return current, f"{warning}: {current} remains active"
    if source.default_name:
        name = source.default_name if source.default_name in known else None
        reason = f"the default, {source.default_name}, does not exist"
    else:
        name = fallback(source.fallbacks, known)
        reason = warning or "the node has no label and there is no default"
    if name is None:
        raise fault("GH1802", directory=source.directory, reason=reason, known=_listed(known))
    return name, f"{warning}: using {name or 'an empty one'}" if warning else ""


def fallback(strategies: tuple[str, ...], known: list[str]) -> str | None:
    """Return the configuration of the first strategy that finds one, "" for an empty one.

    >>> fallback(("named", "single"), ["a"])
    'a'
    """
    for strategy in strategies:
        if strategy == "named" and "default" in known:
            return "default"
        if strategy == "single" and len(known) == 1:
            return known[0]
        if strategy == "empty":
            return ""
    return None


def names(directory: str) -> list[str]:
    """Return the names of the configurations in a directory, sorted; raises GH1801."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_file())
    except OSError as error:
        raise fault("GH1801", path=directory, reason=error.strerror or error) from error


def watched(source: ConfigSource) -> tuple[str, ...]:
    """Return the directories to watch by inotify for a change of the configuration.

    A replaced file, another link target and a new `..data` are all changes of a directory: watch
    for creation, moves, deletion and close after writing. Call this again after each change, since
    links may have another target.
    """
    directories = [source.directory] if source.directory and not source.file else []
    for file in (source.file, source.name_file):
        directories += _directories(file) if file else []
    return tuple(dict.fromkeys(directories))


def _directories(path: str) -> list[str]:
    """Return the directory of a file, and those of its link targets, as config-manager makes.

    The target of a ConfigMap's `..data` is omitted: the kubelet removes it with its content.
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
        except OSError:  # not a link, or missing: its creation changes the directory
            break
    return found


def digest(made: Configuration) -> str:
    """Return 8 hexadecimal digits that are the same for configurations with the same meaning."""
    text = json.dumps(configuration.document(made), sort_keys=True)
    return f"{crc32(text.encode()):08x}"  # hashlib would load 4 MB of OpenSSL


def _name_in(path: str) -> str | None:
    """Return the name in a file, None if the file is empty or missing."""
    content = _content(path, _LONGEST_NAME, may_be_missing=True)
    return content.decode("utf-8", "replace").strip() or None


def _content(path: str, largest: int, *, may_be_missing: bool = False) -> bytes:
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return files.read(path, largest)
    except OSError as error:
        if may_be_missing and isinstance(error, FileNotFoundError):
            return b""
        raise fault("GH1801", path=path, reason=error.strerror or error) from error


def _listed(known: list[str]) -> str:
    return ", ".join(known) or "none at all"
