# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration: JSON schema, and tables of docs/reference/device-plugin.md."""

from __future__ import annotations

from generate.pages import page
from gpuhook.device_plugin.config.configuration import ROOT_SECTION, schema_text
from gpuhook.device_plugin.config.grammar.grammar import Key, Option, Section, walk
from gpuhook.device_plugin.config.grammar.value_kinds import ValueKind
from gpuhook.device_plugin.config.plugin_options import LABEL_OPTIONS, OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OPTIONS_OF_KEYS = """\
## Options and keys

| option | variable | key | default | description |
|---|---|---|---|---|
"""
_OPTIONS_OF_A_START = """\
## Start options

These do not change while the plugin runs.

| option | variable | default | description |
|---|---|---|---|
"""
_OTHER_KEYS = """\
## Keys without an option

| key | default | description |
|---|---|---|
"""


def files() -> dict[str, str]:
    """Return the page with its tables, and the JSON schema, by their paths in the checkout."""
    schema = {"gpuhook/schemas/device-plugin.json": schema_text()}
    return page("docs/reference/device-plugin.md", tables()) | schema


def tables() -> str:
    """Return the three tables with their headings."""
    of_keys = [option for option in (*OPTIONS, *LABEL_OPTIONS) if option.key]
    of_a_start = [option for option in OPTIONS if not option.key]
    known = {option.key for option in of_keys}
    others = [(path, key) for path, key in walk(ROOT_SECTION) if path not in known]
    parts = (
        _OPTIONS_OF_KEYS + "".join(map(_option_row, of_keys)),
        _OPTIONS_OF_A_START + "".join(map(_start_row, of_a_start)),
        _OTHER_KEYS + "".join(_key_row(path, key) for path, key in others if _has_row(path, key)),
    )
    return "\n".join(parts)


def _has_row(path: str, key: Key) -> bool:
    """Return whether a key has a row: sections have none, nor keys of mps that timeSlicing has."""
    same = path.replace("sharing.mps.", "sharing.timeSlicing.")
    is_section = isinstance(key.kind, Section)
    return not is_section and (same == path or same not in dict(walk(ROOT_SECTION)))


def _option_row(option: Option) -> str:
    command = "`gpuhook labels` only: " if option.is_of_labels else ""
    names = (command + _names(option), _code(option.variables), f"`{option.key}`")
    return _row(*names, _default(option.default), option.about)


def _start_row(option: Option) -> str:
    about = f"No effect, accepted with a warning: {option.ignored}." if option.ignored else ""
    names = (_names(option), _code(option.variables))
    return _row(*names, _default(option.default), about or option.about)


def _key_row(path: str, key: Key) -> str:
    default = "" if key.required else _default(key.default_text)
    is_value = isinstance(key.kind, ValueKind)
    return _row(f"`{path}`", default if is_value else "", key.about)


def _names(option: Option) -> str:
    names = [f"--{name}" for name in (option.name, *option.aliases)]
    return _code(names + ([name[1:] for name in names] if option.has_one_dash else []))


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _default(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(*cells: str) -> str:
    texts = (cell.replace("|", "\\|").replace("<", "\\<") for cell in cells)
    return f"| {' | '.join(texts)} |\n"
