# SPDX-License-Identifier: Apache-2.0
"""The effective settings, each with its origin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gpuhook.cli.generate import generate_section
from gpuhook.host import installed_roots
from gpuhook.host.hot import settings, settings_environment
from gpuhook.host.suggestion import nearest
from gpuhook.node import settings_file, spec_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT = "default"
# Sections that are not commands: a variable with such a prefix is a setting or a mistake.
_OWN = ("GPUHOOK_DRIVER_", "GPUHOOK_REQUEST_", "GPUHOOK_RUNTIME_")


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting; `origin` is "default", "/etc/gpuhook/config.yaml, line 3" or a variable."""

    section: str
    key: str
    value: object
    origin: str


def values(document: Mapping[str, object]) -> list[ShownSetting]:
    """Return all settings of a node whose file has `document`; raises GH1533."""
    of_environment = settings_environment.values(os.environ)
    chosen = settings.overridden(settings.from_document(dict(document)))
    chosen.default_kind = spec_node.first_node(chosen).kind
    variables = {one[0]: name for name, one in settings_environment.VARIABLES.items()}
    lines = _lines()
    roots = installed_roots.installed_roots()
    installed = dict(zip(("driver_root", "dev_root"), roots, strict=True))
    found = []
    for (section, key), attribute in settings.KEYS.items():
        origin = lines.get((section, key), DEFAULT)
        if attribute in of_environment:
            origin = variables[attribute]
        value = getattr(chosen, attribute)
        if origin == DEFAULT and installed.get(attribute) and not chosen.driver_root:
            value, origin = installed[attribute], installed_roots.installed_file()
        found.append(ShownSetting(section, key, value, origin))
    return [*found, *_generate(document, lines)]


def document(found: list[ShownSetting], *, with_origins: bool) -> dict[str, Any]:
    """Return the settings as a settings file has them, or each with `value` and `origin`."""
    sections: dict[str, Any] = {}
    for one in found:
        shown = {"value": one.value, "origin": one.origin} if with_origins else one.value
        sections.setdefault(one.section, {})[one.key] = shown
    return sections


def unknown_variables() -> Iterator[str]:
    """Yield a warning for each variable that looks like a setting and is not one."""
    for name in sorted(os.environ):
        if name.startswith(_OWN) and name not in settings_environment.VARIABLES:
            near = nearest(name, settings_environment.VARIABLES)
            yield f"{name}: unknown setting" + (f"; did you mean {near}?" if near else "")
        elif name.startswith("GPUHOOK_") and name not in settings_environment.VARIABLES:
            meant = _without_words(name)
            if meant is not None:
                yield f"{name}: unknown setting; did you mean {meant}?"


def _without_words(name: str) -> str | None:
    """Return the variable that differs only in underscores, as for GPUHOOK_CDI_ONSTALE."""
    letters = name.replace("_", "")
    known = settings_environment.VARIABLES
    return next((one for one in known if one.replace("_", "") == letters), None)


def _generate(
    document: Mapping[str, object], lines: Mapping[tuple[str, str], str]
) -> Iterator[ShownSetting]:
    """Yield the options of generate-cdi that are set; its --help has the other defaults."""
    from gpuhook.cli.generate.generate_cdi import generate_cdi

    section = document.get(generate_section.SECTION)
    values_of_file = section if isinstance(section, dict) else {}
    variables = generate_section.values_of_environment(generate_cdi)
    for key, option in generate_section.options(generate_cdi):
        if key in variables:
            variable, text = variables[key]
            is_list = generate_section.is_list(option)
            value: object = generate_section.list_entries(option, text) if is_list else text
            if option.is_flag:
                value = text.lower() in ("1", "true", "t", "yes", "y", "on")
            yield ShownSetting(generate_section.SECTION, key, value, variable)
        elif key in values_of_file:
            place = lines.get((generate_section.SECTION, key), DEFAULT)
            yield ShownSetting(generate_section.SECTION, key, values_of_file[key], place)


def _lines() -> dict[tuple[str, str], str]:
    """Return (section, key) -> file and line of each key in this node's file."""
    path = settings.path()
    if not os.path.exists(path):
        return {}
    found = settings_file.lines(path)
    return {key: f"{path}, line {line}" for key, line in found.items()}
