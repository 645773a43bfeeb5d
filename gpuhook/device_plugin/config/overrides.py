# SPDX-License-Identifier: Apache-2.0
"""The values of the command line and the environment. The command line takes precedence.

An empty variable is an unset one, as manifests use them, except KUBELET_SOCKET.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.config_reader import Override
from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar.name_values import Xids
from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, shown
from gpuhook.device_plugin.config.plugin_options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.device_plugin.config.grammar.grammar import Option

# NVIDIA's plugin ignores malformed words of these, with a warning.
_LENIENT = ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS")
_NEED_DIRECTORY = ("name_file", "default_name")


@dataclass(slots=True)
class OptionValues:
    """Checked values: `overrides` by path of the file, `launch` by the field of Launch."""

    overrides: dict[str, Override] = field(default_factory=dict)
    launch: dict[str, object] = field(default_factory=dict)
    findings: list[ConfigFinding] = field(default_factory=list)

    def add(self, severity: str, option: Option, message: str, source: str, hint: str = "") -> None:
        """Add a finding about the value of an option."""
        key = "" if option.ignored else option.key
        self.findings.append(ConfigFinding(severity, key, 0, 0, message, hint, source))


def read_overrides(
    command_line: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    options: tuple[Option, ...] = OPTIONS,
) -> OptionValues:
    """Return all values. `command_line` has texts by option name; an empty list is not given."""
    given = OptionValues()
    for option in options:
        texts = command_line.get(option.name) or ()
        if texts:
            _take(given, option, list(texts), f"--{option.name}")
            continue
        variable = next((name for name in option.variables if _is_set(option, environ, name)), "")
        if variable:
            _take(given, option, [environ[variable]], f"the environment variable {variable}")
    for option in options if "directory" not in given.launch else ():
        if option.attribute in _NEED_DIRECTORY and option.attribute in given.launch:
            source = f"--{option.name} ({option.variables[0]})"
            message = "has no effect without a directory of configurations, --config-dir"
            given.add(WARNING, option, message, source)
    return given


def _is_set(option: Option, environ: Mapping[str, str], variable: str) -> bool:
    return variable in environ and (bool(environ[variable]) or option.is_empty_set)


def _take(given: OptionValues, option: Option, texts: list[str], source: str) -> None:
    """Add the value of an option, or the error in it."""
    if source.endswith(_LENIENT) and isinstance(option.kind, Xids):
        texts[0], malformed = option.kind.well_formed(texts[0])
        for word in malformed:
            given.add(WARNING, option, f"{shown(word)} is not an XID and is ignored", source)
    try:
        value = _value(option, texts, is_variable=not source.startswith("--"))
    except UnfitError as error:
        given.add(ERROR, option, error.message, source, error.hint)
        return
    if option.ignored:
        if value is not False:
            given.add(WARNING, option, f"has no effect: {option.ignored}", source)
    elif option.key:
        given.overrides[option.key] = Override(value, source)
    else:
        given.launch[option.attribute] = value


def _value(option: Option, texts: list[str], *, is_variable: bool) -> object:
    if option.separator:
        words = texts[0].split(option.separator) if is_variable else texts
        return tuple(option.kind.parse_text(word) for word in words if word)
    return option.kind.parse_text(",".join(texts) if option.kind.is_list else texts[-1])
