# SPDX-License-Identifier: Apache-2.0
"""What the command line and the environment say: the command line counts, then the environment.

An empty variable is one that is not set, as manifests have them, but for KUBELET_SOCKET.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.config_reader import Override
from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar.name_values import Xids
from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, shown
from gpuhook.device_plugin.config.plugin_options import OPTIONS, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_OF_A_DIRECTORY = {"config_name_file", "default_config"}
_NO_DIRECTORY = "has no effect without a directory of configurations, --config-dir"


@dataclass(slots=True)
class Given:
    """Checked values: `overrides` by path of the file, `launch` by the option's field."""

    overrides: dict[str, Override] = field(default_factory=dict)
    launch: dict[str, object] = field(default_factory=dict)
    findings: list[ConfigFinding] = field(default_factory=list)


def read_overrides(
    command_line: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    options: tuple[Option, ...] = OPTIONS,
) -> Given:
    """Return all that is said. `command_line` has texts by option name; none means not given."""
    found = Given()
    for option in options:
        texts = command_line.get(option.name) or ()
        if texts:
            _take(found, option, list(texts), f"--{option.name}")
            continue
        variable = next((name for name in option.variables if _is_set(option, environ, name)), "")
        if variable:
            source = f"the environment variable {variable}"
            if variable in option.lenient:
                _take_some(found, option, environ[variable], source)
            else:
                _take(found, option, [environ[variable]], source)
    if "config_dir" not in found.launch:
        for option in options:
            if option.field in _OF_A_DIRECTORY & found.launch.keys():
                source = f"--{option.name} ({option.variables[0]})"
                found.findings.append(ConfigFinding(WARNING, "", 0, 0, _NO_DIRECTORY, "", source))
    return found


def _is_set(option: Option, environ: Mapping[str, str], variable: str) -> bool:
    return variable in environ and (bool(environ[variable]) or option.empty_counts)


def _take(found: Given, option: Option, texts: list[str], source: str) -> None:
    """Add what an option says, or what is wrong with it."""
    try:
        value = _value(option, texts, from_variable=not source.startswith("--"))
    except UnfitError as error:
        found.findings.append(
            ConfigFinding(ERROR, option.key, 0, 0, error.message, error.hint, source)
        )
        return
    if option.ignored:
        if value is not False:
            message = f"has no effect: {option.ignored}"
            found.findings.append(ConfigFinding(WARNING, "", 0, 0, message, "", source))
    elif option.key:
        found.overrides[option.key] = Override(value, source)
    else:
        found.launch[option.field] = value


def _value(option: Option, texts: list[str], *, from_variable: bool) -> object:
    if not option.repeatable:
        return option.kind.of_text(texts[-1])
    if option.key or option.separator == ",":
        return option.kind.of_text(",".join(texts))
    words = texts[0].split(option.separator) if from_variable else texts
    return tuple(option.kind.of_text(word) for word in words if word)


def _take_some(found: Given, option: Option, text: str, source: str) -> None:
    """Add the XIDs of a text, and a warning for each word that is none."""
    assert isinstance(option.kind, Xids)  # noqa: S101 # a table's own entry
    value, wrong = option.kind.of_some(text)
    for word in wrong:
        message = f"{shown(word)} is no XID and is left out"
        found.findings.append(ConfigFinding(WARNING, option.key, 0, 0, message, "", source))
    found.overrides[option.key] = Override(value, source)
