# SPDX-License-Identifier: Apache-2.0
"""The section `generate` of the settings: the options of generate-cdi, by name.

A key is the option in camelCase, in the plural if the option is repeatable: --device-id is
deviceIds, a list. The command line takes precedence, then the option's variable, then the key.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.core import ParameterSource

from gpuhook.cli.options import file_option
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECTION = "generate"
_ERROR, _SET = "gpuhook.settings_error", "gpuhook.settings_set"
# Not settings of a node: driver.root and driver.devRoot apply to all commands, and a dump is of
# another node.
_ELSEWHERE = ("driver_root", "dev_root", "inventory", "help")


class WordsOption(click.Option):
    """An option whose value is a list of these `words`."""

    def __init__(self, *args: Any, words: tuple[str, ...], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.words = words


class Configured(file_option.OutputFileCommand):
    """A command whose options have defaults in the settings file.

    Running the command raises the error of an invalid file; --help does not.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`, with the settings as defaults below those of the context."""
        if not ctx.resilient_parsing:
            try:
                said = values_of_file(self)
            except GpuhookError as error:
                said, ctx.meta[_ERROR] = {}, error
            before = ctx.default_map or {}
            ctx.meta[_SET] = frozenset(said).difference(before)
            ctx.default_map = {**said, **before}
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises GH1530."""
        if _ERROR in ctx.meta:
            raise ctx.meta[_ERROR]
        for name, value in self.excluded(ctx).items():
            if is_of_settings(ctx, name):
                ctx.params[name] = value
        names_a_file = ctx.params.get("output") not in (None, "-")
        if names_a_file and is_of_settings(ctx, "fmt") and not is_of_settings(ctx, "output"):
            ctx.params["fmt"] = None  # the name of the caller's file decides
        return super().invoke(ctx)

    def excluded(self, ctx: click.Context) -> Mapping[str, Any]:
        """Return the parameters to which the settings do not apply in a call, and their values."""
        del ctx
        return {}


def is_of_settings(ctx: click.Context, name: str) -> bool:
    """Return whether the value of a parameter is that of the settings."""
    source = ctx.get_parameter_source(name)
    return source is ParameterSource.DEFAULT_MAP and name in ctx.meta.get(_SET, ())


def options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yield key and option of each key of the section, in the order of --help."""
    for param in command.params:
        if isinstance(param, click.Option) and param.name not in _ELSEWHERE and not param.hidden:
            yield key(param), param


def key(option: click.Option) -> str:
    """Return the key of an option: --library-search-path is librarySearchPaths."""
    if option.name == "fmt":
        return "format"  # `output` would read as a file
    long = next(name for name in option.opts if name.startswith("--"))  # the others are aliases
    first, *rest = long.lstrip("-").split("-")
    name = first + "".join(word.capitalize() for word in rest)
    if not option.multiple or name.endswith("s"):
        return name
    return name[:-1] + "ies" if name.endswith("y") else name + "s"


def schema(command: click.Command) -> dict[str, Any]:
    """Return the JSON schema of the section, made from the options of the command."""
    return {
        "description": "Defaults of the options of gpuhook generate-cdi.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(option) for name, option in options(command)},
    }


def _schema(option: click.Option) -> dict[str, Any]:
    head = {"description": " ".join((option.help or "").split())}
    if option.is_flag:
        return {**head, "type": "boolean"}
    if isinstance(option.type, click.types.IntParamType):
        return {**head, "type": "integer"}
    of_one: dict[str, Any] = {"type": "string"}
    if isinstance(option.type, click.Choice):
        of_one = {"enum": [str(choice) for choice in option.type.choices]}
    elif isinstance(option, WordsOption):
        of_one = {"enum": list(option.words)}
    if is_list(option):
        return {**head, "type": "array", "uniqueItems": True, "items": of_one}
    return {**head, **of_one}


def is_list(option: click.Option) -> bool:
    """Return whether the value of an option's key is a list."""
    return option.multiple or isinstance(option, WordsOption)


def list_entries(option: click.Option, text: str) -> list[str]:
    """Return the entries of a variable's value, which click splits at colons or blanks."""
    if isinstance(option, WordsOption):
        return [word for word in text.replace(",", " ").split() if word]
    return list(option.type.split_envvar_value(text))


def default(option: click.Option) -> Any:
    """Return the default value of a key: the option's default, or an empty value."""
    said = option.default
    if option.is_flag:
        return said is True
    if is_list(option):
        return list(said) if isinstance(said, (list, tuple)) else []
    if isinstance(option.type, click.Choice) and not isinstance(said, str):
        return str(option.type.choices[0])
    return said if isinstance(said, (str, int)) else ""


def values_of_file(command: click.Command) -> dict[str, Any]:
    """Return parameter -> value by this node's settings file; raises GH1530."""
    if not os.path.exists(settings.path()):
        return {}
    from gpuhook.node import settings_file

    return values_of_document(command, settings_file.document_of_node())


def values_of_document(command: click.Command, document: Mapping[str, object]) -> dict[str, Any]:
    """Return parameter -> value by a settings document, in the form of click's default_map."""
    section = document.get(SECTION)
    said = section if isinstance(section, dict) else {}
    found = {}
    for name, option in options(command):
        value = said.get(name)
        # The option's default applies to an empty text or list.
        if value not in (None, "", []) and option.name is not None:
            is_text = isinstance(value, list) and not option.multiple
            found[option.name] = ",".join(value) if is_text else value
    return found


def values_of_environment(command: click.Command) -> dict[str, tuple[str, str]]:
    """Return key -> (variable, text) of the options that the environment sets."""
    found: dict[str, tuple[str, str]] = {}
    for name, option in options(command):
        own = option.envvar or f"GPUHOOK_GENERATE_CDI_{(option.name or '').upper()}"
        for variable in [own] if isinstance(own, str) else own:
            if os.environ.get(variable):
                found.setdefault(name, (variable, os.environ[variable]))
    return found
