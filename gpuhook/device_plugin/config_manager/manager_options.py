# SPDX-License-Identifier: Apache-2.0
"""The options of config-manager: environment variables, and options of the same names."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

STRATEGIES = ("named", "single", "empty")
_YES, _NO = ("1", "t", "true", "yes"), ("", "0", "f", "false", "no")
_DEFAULTS = {
    "NODE_LABEL": "nvidia.com/device-plugin.config",
    "SIGNAL": "1",
}
_NEEDED = ("NODE_NAME", "CONFIG_FILE_SRCDIR", "CONFIG_FILE_DST")


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """The variables, each by its name in lower case.

    `signal` is a number; `process_to_signal` is the first word of a process's command line.
    """

    node_name: str
    node_label: str
    config_file_srcdir: str
    config_file_dst: str
    default_config: str
    fallback_strategies: tuple[str, ...]
    send_signal: bool
    signal: int
    process_to_signal: str
    oneshot: bool


NAMES = tuple(field.name.upper() for field in fields(ManagerOptions))


def options(words: Sequence[str], environ: Mapping[str, str]) -> ManagerOptions:
    """Return the options; an option (--node-name) takes precedence over its variable (NODE_NAME).

    Raises GH2108 for a missing or wrong value.
    """
    given = {name: environ.get(name, "") for name in (*NAMES, "KUBECONFIG")}
    given.update(_command_line(words))
    for name in NAMES:
        given[name] = given[name] or _DEFAULTS.get(name, "")
    for name in _NEEDED:
        if not given[name]:
            raise fault("GH2108", variable=name, value="", reason="it is required")
    if given["KUBECONFIG"]:
        _refuse("KUBECONFIG", given, "only the service account of its pod is supported")
    values: dict[str, Any] = {name.lower(): given[name] for name in NAMES}
    values["send_signal"] = _boolean("SEND_SIGNAL", given)
    if values["send_signal"] and not given["PROCESS_TO_SIGNAL"]:
        _refuse("PROCESS_TO_SIGNAL", given, "SEND_SIGNAL requires the name of a process")
    values["fallback_strategies"] = _strategies(given)
    values["signal"] = _signal(given)
    values["oneshot"] = _boolean("ONESHOT", given)
    return ManagerOptions(**values)


def _command_line(words: Sequence[str]) -> dict[str, str]:
    """Return the values of `--node-name=X`, `--node-name X` and `--oneshot` by variable name."""
    values = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_").upper()
        if not option.startswith("-") or name not in (*NAMES, "KUBECONFIG"):
            raise fault("GH2108", variable=word, value="", reason="unknown option")
        if not equals and name in ("SEND_SIGNAL", "ONESHOT"):
            value = "true"
        elif not equals:
            value = rest.pop(0) if rest else ""
        values[name] = value
    return values


def _boolean(name: str, given: Mapping[str, str]) -> bool:
    word = given[name].lower()
    if word not in (*_YES, *_NO):
        _refuse(name, given, "it must be true or false")
    return word in _YES


def _signal(given: Mapping[str, str]) -> int:
    word = given["SIGNAL"].upper()
    known = {str(int(one)): one for one in signal.Signals}
    known |= {one.name: one for one in signal.Signals}
    if word not in known:
        _refuse("SIGNAL", given, "it is not a signal")
    return int(known[word])


def _strategies(given: Mapping[str, str]) -> tuple[str, ...]:
    strategies = [word.strip() for word in given["FALLBACK_STRATEGIES"].split(",") if word.strip()]
    if not set(strategies) <= set(STRATEGIES):
        _refuse("FALLBACK_STRATEGIES", given, f"known strategies are {', '.join(STRATEGIES)}")
    return tuple(strategies)


def _refuse(name: str, given: Mapping[str, str], reason: str) -> None:
    raise fault("GH2108", variable=name, value=given[name], reason=reason)
