# SPDX-License-Identifier: Apache-2.0
"""Generate the settings' schema with generate-cdi's options, the default file, and the tables."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from generate.pages import page
from gpuhook.cli.generate import generate_section
from gpuhook.cli.generate.generate_cdi import generate_cdi
from gpuhook.host.hot import settings, settings_environment
from gpuhook.node import settings_file
from gpuhook.vendors.nvidia.hot import vocabulary

_WIDTH = 98
_HEAD = """\
# Settings of gpuhook: /etc/gpuhook/config.yaml, or the file that GPUHOOK_CONFIG names.
#
# The file lists every key with its default, commented out (#key), so it sets nothing. To set a
# key, remove the `#` and change the value. `gpuhook config validate` checks the file, and
# `gpuhook config show --origin` prints the current values and their origin. An environment
# variable, GPUHOOK_<SECTION>_<KEY> such as GPUHOOK_REQUEST_ON_REFUSAL, overrides the file.
"""


def files() -> dict[str, str]:
    """Return the three files, by their paths in the checkout."""
    return {
        "gpuhook/schemas/config.json": schema_text(),
        "gpuhook/schemas/config.yaml": shipped(),
        **page("docs/reference/configuration.md", tables()),
    }


def schema() -> dict[str, Any]:
    """Return the schema of the settings, with the options that generate-cdi has now."""
    found = settings_file.schema()
    found["properties"][generate_section.SECTION] = generate_section.schema(generate_cdi)
    return found


def defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults: section -> key -> value."""
    chosen = settings.Settings()
    chosen.default_kind = vocabulary.VOCABULARY.default_kind
    found: dict[str, dict[str, Any]] = {}
    for (section, key), attribute in settings.KEYS.items():
        found.setdefault(section, {})[key] = getattr(chosen, attribute)
    found[generate_section.SECTION] = {
        key: generate_section.default(option)
        for key, option in generate_section.options(generate_cdi)
    }
    return found


def shipped() -> str:
    """Return the text of the default settings file."""
    lines = [_HEAD.rstrip("\n")]
    values = defaults()
    for section, one in schema()["properties"].items():
        lines += ["", f"# {one['description']}", f"{section}:"]
        for key, said in one["properties"].items():
            text = f"{said['description']} {_choices(said)}".rstrip()
            wrapped = textwrap.wrap(text, _WIDTH - 4, break_on_hyphens=False)
            lines += [f"  # {line}" for line in wrapped]
            lines.append(f"  #{key}: {_yaml(values[section][key])}")
    return "\n".join(lines) + "\n"


def tables() -> str:
    """Return a table of the keys of each section, in Markdown."""
    lines = []
    values = defaults()
    variables = {one[0]: name for name, one in settings_environment.VARIABLES.items()}
    options = dict(generate_section.options(generate_cdi))
    for section, one in schema()["properties"].items():
        is_generate = section == generate_section.SECTION
        lines += [f"### `{section}`", "", one["description"], ""]
        by = "option" if is_generate else "variable"
        lines += [f"| key | default | meaning | {by} |", "|---|---|---|---|"]
        for key, said in one["properties"].items():
            name = (
                next(name for name in options[key].opts if name.startswith("--"))
                if is_generate
                else variables[settings.KEYS[section, key]]
            )
            text = f"{said['description']} {_choices(said)}".strip().replace("|", "\\|")
            value = _yaml(values[section][key])
            lines.append(f"| `{key}` | `{value}` | {text} | `{name}` |")
        lines.append("")
    return "\n".join(lines)


def schema_text() -> str:
    """Return the text of the schema file."""
    return json.dumps(schema(), indent=2) + "\n"


def _choices(said: dict[str, Any]) -> str:
    known = said.get("enum") or said.get("items", {}).get("enum")
    return f"Known: {', '.join(known)}." if known else ""


def _yaml(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value) or '""'
