# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook generate-cdi` for mode csv."""

from __future__ import annotations

from typing import Any, TypeVar

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_FILE = click.Path(dir_okay=False)
_OPTIONS = (
    click.option(
        "--csv-file",
        type=_FILE,
        multiple=True,
        show_envvar=True,
        help="On a Tegra, a file that says what belongs into containers, in place of devices.csv, "
        "drivers.csv and l4t.csv of the system; repeatable, in the environment separated by "
        "colons.",
    ),
    click.option(
        "--csv-ignore-pattern",
        metavar="PATTERN",
        multiple=True,
        show_envvar=True,
        help="Leave out the links (`sym`) of these files whose path matches, after **/ whose last "
        "part does; repeatable.",
    ),
    click.option(
        "--csv-compat-container-root",
        metavar="DIRECTORY",
        show_envvar=True,
        help="Where images for this Tegra have newer CUDA libraries. Default: "
        "/usr/local/cuda/compat_orin on Orin, else /usr/local/cuda/compat.",
    ),
)


def csv_options(command: F) -> F:
    """Add the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_csv_options(options: dict[str, Any], mode: str) -> dict[str, Any]:
    """Take the options out of a command's, and return them as a Place has them.

    A usage error where another mode than auto and csv is asked for by `mode`.
    """
    found = {
        "csv_files": options.pop("csv_file"),
        "csv_ignore_patterns": options.pop("csv_ignore_pattern"),
        "csv_compat_root": options.pop("csv_compat_container_root") or "",
    }
    if any(found.values()) and mode not in ("auto", "csv"):
        raise click.UsageError(f"the options --csv-... are of no use with --mode {mode}")
    return found


def notes(found: dict[str, Any], mode: str) -> list[str]:
    """Return a sentence on options without effect in `mode`, which is that of this machine."""
    if mode == "csv" or not any(found.values()):
        return []
    return [f"the options --csv-... change nothing in mode {mode}"]
