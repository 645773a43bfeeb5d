# SPDX-License-Identifier: Apache-2.0
"""The place of an engine's files: root's engine, or the rootless one of a user."""

from __future__ import annotations

import os

import click

from gpuhook.errors import fault
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import Where

_WITH_HOMES = ("docker", "podman")  # rootless engines


def where(
    engine: str, root: str, config: str = "", drop_in: str = "", *, is_of_user: bool = False
) -> Where:
    """Return the place of an engine's files; for a user, that of the rootless engine.

    Raises GH2014 if the place is that of root's Docker, and the user is not root.
    """
    from gpuhook.engines.configure.configure_engine import Where

    for option, path in (("--config", config), ("--drop-in", drop_in)):
        if path and not path.startswith("/"):
            raise click.BadParameter("it is not an absolute path", param_hint=f"'{option}'")
    reason = _objection_to_user(engine, root) if is_of_user else ""
    if reason:
        raise click.BadParameter(reason, param_hint="'--user'")
    home = _home(engine, root, is_named=bool(is_of_user or config))
    if home is None and engine == "docker" and root == "/" and state.is_rootless():
        raise fault("GH2014")
    return Where(engine, config, drop_in, home)


def _objection_to_user(engine: str, root: str) -> str:
    """Return why --user is wrong usage, "" if it is not."""
    if engine != "docker":
        return "it is for docker only"
    if root != "/":
        return "it cannot be used with --host-root"
    return "" if state.is_rootless() else "run the command as the user of the rootless Docker"


def where_shown(engine: str, root: str) -> Where:
    """Return the place of the files of the engine that runs the user's containers."""
    from gpuhook.engines.configure.configure_engine import Where

    return Where(engine, home=_home(engine, root))


def _home(engine: str, root: str, *, is_named: bool = False) -> str | None:
    """Return the home directory of a user whose engine is rootless, None for root's engine.

    Podman of a user is rootless. Docker is if the user names it, runs a rootless dockerd, or has
    configured one.
    """
    if engine not in _WITH_HOMES or root != "/" or not state.is_rootless():
        return None
    home = os.path.expanduser("~")
    if engine == "podman" or is_named:
        return home
    from gpuhook.engines.configure import configure_record
    from gpuhook.engines.state import host_processes

    record = f"{configure_record.directory(engine, home)}/{configure_record.NAME}"
    is_own = os.path.exists(record) or host_processes.is_run_by_user("dockerd")
    return home if is_own else None
