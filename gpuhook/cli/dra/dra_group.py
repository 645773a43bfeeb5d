# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra`."""

from __future__ import annotations

import click

from gpuhook.cli.dra import dra_drain, dra_run, dra_status
from gpuhook.cli.options import command_sections


@click.group(cls=command_sections.Sentences)
def dra() -> None:
    """Run the drivers of this node for Dynamic Resource Allocation of Kubernetes."""


dra.add_command(dra_run.run)
dra.add_command(dra_status.status)
dra.add_command(dra_drain.drain)
