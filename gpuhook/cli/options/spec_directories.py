# SPDX-License-Identifier: Apache-2.0
"""The option that says in which directories specs are looked for, and what counts without it."""

from __future__ import annotations

import click

from gpuhook.node import settings_file

option = click.option(
    "--spec-dir",
    type=click.Path(file_okay=False),
    multiple=True,
    show_envvar=True,
    help="A directory of specs, lowest priority first; repeatable. "
    "Default: cdi.specDirs of the settings (/etc/cdi, /var/run/cdi).",
)


def chosen(spec_dir: tuple[str, ...]) -> list[str]:
    """Return the directories to look in, lowest priority first; GH1530 for broken settings."""
    return list(spec_dir) or settings_file.of_node().spec_dirs
