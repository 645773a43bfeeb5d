# SPDX-License-Identifier: Apache-2.0
"""`gpuhook uninstall`: a host loses what `gpuhook install` gave it."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.options import install_options, parameters
from gpuhook.install import installation

_EXAMPLES = """
\b
Examples:
  gpuhook uninstall
  gpuhook uninstall --host-root /host
  gpuhook uninstall --host-root /host --dry-run
  gpuhook uninstall --host-root /host --restart systemd
"""


@click.command(epilog=_EXAMPLES)
@install_options.host_root(default="/")
@install_options.install_dir
@install_options.restart
@install_options.dry_run
@click.option(
    "--force", is_flag=True, help="Remove versions, too, that containers still name in their hooks."
)
@parameters.output("text", "json", "yaml")
def uninstall(*, is_dry: bool, force: bool, output: str, **said: Any) -> None:
    """Take gpuhook away from a host: what `gpuhook install` has put there and configured.

    Configurations of engines become what they were before. A version that a container needs remains
    until this is run again after the container has ended. All versions remain if the state
    directory of an engine cannot be read. With the last version go the CDI specs that call its
    hook, gpuhook's state and the file of its feature labels.
    """
    where = installation.place(said["host_root"], said["install_dir"])
    done = installation.uninstall(where, how=said["restart"], is_dry=is_dry, forced=force)
    install_options.show(done, output, where.directory, is_dry=is_dry, is_taken_away=True)
