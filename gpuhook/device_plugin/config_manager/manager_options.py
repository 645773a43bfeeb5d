# SPDX-License-Identifier: Apache-2.0
"""What config-manager is told, by environment variables or by options of the same names."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STRATEGIES = ("named", "single", "empty")
_YES, _NO = ("1", "t", "true", "yes"), ("", "0", "f", "false", "no")
_DEFAULTS = {
    "NODE_LABEL": "nvidia.com/device-plugin.config",
    "SIGNAL": "1",
}
_NEEDED = ("NODE_NAME", "CONFIG_FILE_SRCDIR", "CONFIG_FILE_DST")


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """The variables, each by its name in small letters.

    `signal` is a number; `process_to_signal` is what a process calls itself (its first word).
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
    """Return what is said; an option (--node-name) counts more than a variable (NODE_NAME).

    Raises GH2108 for what is missing or no such value.
    """
    said = {name: environ.get(name, "") for name in (*NAMES, "KUBECONFIG")}
    said.update(_of_words(words))
    for name in NAMES:
        said[name] = said[name] or _DEFAULTS.get(name, "")
    for name in _NEEDED:
        if not said[name]:
            raise fault("GH2108", variable=name, value="", reason="it has to be set")
    if said["KUBECONFIG"]:
        _refuse("KUBECONFIG", said, "it asks as its pod's service account alone")
    sends = _switch("SEND_SIGNAL", said)
    if sends and not said["PROCESS_TO_SIGNAL"]:
        _refuse("PROCESS_TO_SIGNAL", said, "SEND_SIGNAL needs the name of a process")
    return ManagerOptions(
        node_name=said["NODE_NAME"],
        node_label=said["NODE_LABEL"],
        config_file_srcdir=said["CONFIG_FILE_SRCDIR"],
        config_file_dst=said["CONFIG_FILE_DST"],
        default_config=said["DEFAULT_CONFIG"],
        fallback_strategies=_strategies(said),
        send_signal=sends,
        signal=_signal(said),
        process_to_signal=said["PROCESS_TO_SIGNAL"],
        oneshot=_switch("ONESHOT", said),
    )


def _of_words(words: Sequence[str]) -> dict[str, str]:
    """Return what `--node-name=X`, `--node-name X` and `--oneshot` say, by the variables' names."""
    found = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_").upper()
        if not option.startswith("-") or name not in (*NAMES, "KUBECONFIG"):
            raise fault("GH2108", variable=word, value="", reason="there is no such option")
        if not equals and name in ("SEND_SIGNAL", "ONESHOT"):
            value = "true"
        elif not equals:
            value = waiting.pop(0) if waiting else ""
        found[name] = value
    return found


def _switch(name: str, said: Mapping[str, str]) -> bool:
    word = said[name].lower()
    if word not in (*_YES, *_NO):
        _refuse(name, said, "it is true or false")
    return word in _YES


def _signal(said: Mapping[str, str]) -> int:
    word = said["SIGNAL"].upper()
    known = {str(int(one)): one for one in signal.Signals}
    known |= {one.name: one for one in signal.Signals}
    if word not in known:
        _refuse("SIGNAL", said, "there is no such signal")
    return int(known[word])


def _strategies(said: Mapping[str, str]) -> tuple[str, ...]:
    found = [word.strip() for word in said["FALLBACK_STRATEGIES"].split(",") if word.strip()]
    if not set(found) <= set(STRATEGIES):
        _refuse("FALLBACK_STRATEGIES", said, f"known are {', '.join(STRATEGIES)}")
    return tuple(found)


def _refuse(name: str, said: Mapping[str, str], reason: str) -> None:
    raise fault("GH2108", variable=name, value=said[name], reason=reason)
