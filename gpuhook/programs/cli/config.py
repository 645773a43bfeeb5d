# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config`: the settings file, checked and compiled for the hot path."""

from __future__ import annotations

import json
import os
from importlib import resources

import click
import jsonschema
import yaml

from gpuhook import settings
from gpuhook.errors import fault
from gpuhook.programs.cli import parameters
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@click.group()
def config() -> None:
    """Show and check the settings of this node."""


@config.command()
def path() -> None:
    """Print the path of the settings file."""
    click.echo(settings.path())


@config.command()
@parameters.output("yaml", "json")
def show(output: str) -> None:
    """Print every setting as it counts now, defaults included."""
    chosen = settings.from_document(_read(settings.path()))
    chosen.default_kind = chosen.default_kind or words.VOCABULARY.default_kind
    document: dict[str, dict[str, object]] = {}
    for (section, key), attribute in settings.KEYS.items():
        document.setdefault(section, {})[key] = getattr(chosen, attribute)
    if output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


@config.command()
@click.argument("file", required=False)
def validate(file: str | None) -> None:
    """Check FILE (default: this node's settings); exit status 1 if it is wrong."""
    where = file or settings.path()
    if not os.path.exists(where) and file is None:
        click.echo(f"{where}: absent, defaults count")
        return
    if not os.path.exists(where):
        raise fault("GH1532", path=where, reason="there is no such file")
    reason = problem(where) or unknown_keys(load(where))
    if reason:
        raise fault("GH1532", path=where, reason=reason)
    click.echo(f"{where}: valid")


@config.command(name="compile", hidden=True)
@click.argument("file")
def compile_file(file: str) -> None:
    """Compile FILE for the hot path; what is wrong with it is compiled too."""
    found = os.stat(file)
    reason = problem(file)
    document: dict[str, object] = {"error": reason} if reason else _warned(file, load(file))
    try:
        settings.store(file, found, document)
    except OSError:
        # Who called finds no compiled form and says why in its own log.
        click.echo(f"warning: {fault('GH1531', path=file)}", err=True)


def _read(where: str) -> dict[str, object]:
    if not os.path.exists(where):
        return {}
    reason = problem(where)
    if reason:
        raise fault("GH1530", path=where, reason=reason)
    return _warned(where, load(where))


def _warned(where: str, document: dict[str, object]) -> dict[str, object]:
    """Return `document`, after a word on standard error about keys that nobody reads."""
    unknown = unknown_keys(document)
    if unknown:
        click.echo(f"warning: {where}: {unknown}", err=True)
    return document


def load(file: str) -> dict[str, object]:
    """Return the document of a settings file; raises yaml.YAMLError or OSError."""
    with open(file, "rb") as stream:
        document: dict[str, object] = yaml.safe_load(stream) or {}
    return document


def problem(file: str) -> str:
    """Return what makes a settings file unusable, "" if nothing does.

    Unknown keys do not: after a downgrade the node must go on (`unknown_keys` names them).
    """
    try:
        document = load(file)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return place + str(getattr(error, "problem", None) or error)
    except (OSError, UnicodeDecodeError) as error:
        return str(error)
    return _sentence(error for error in _errors(document) if not _is_unknown_key(error))


def unknown_keys(document: dict[str, object]) -> str:
    """Return which keys of a usable document nobody reads, "" if there are none."""
    return _sentence(error for error in _errors(document) if _is_unknown_key(error))


def _errors(document: dict[str, object]) -> list[jsonschema.ValidationError]:
    text = resources.files("gpuhook.schemas").joinpath("config.json").read_text("utf-8")
    validator = jsonschema.Draft202012Validator(json.loads(text))
    return sorted(validator.iter_errors(document), key=lambda error: list(error.absolute_path))


def _is_unknown_key(error: jsonschema.ValidationError) -> bool:
    return error.validator == "additionalProperties"


def _sentence(errors: Iterable[jsonschema.ValidationError]) -> str:
    return "; ".join(
        f"{'.'.join(str(step) for step in error.absolute_path) or 'the file'}: {error.message}"
        for error in errors
    )
