# SPDX-License-Identifier: Apache-2.0
"""`gpuhook node install` and `gpuhook node uninstall`: gpuhook on a host, from its image."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import Any

import click

from gpuhook.cli.engines import configure_options, install_options
from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure import configure_engine, engine_plan
from gpuhook.engines.configure.engine_plan import ROUTES, EngineOptions
from gpuhook.host import console
from gpuhook.install import (
    engine_choice,
    installation,
    mounted_host,
    pod_wait,
    runtime_names,
    runtime_tree,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import Route
    from gpuhook.install.runtime_tree import RuntimeTree

_EXAMPLES = """
\b
Examples:
  gpuhook node install --host-root /host
  gpuhook node install --host-root /host --engine containerd --restart systemd
  gpuhook node install --host-root /host --engine none --dry-run
  gpuhook node install --host-root /host --driver-root /run/nvidia/driver
  gpuhook node install --host-root /host --stay --undo-on-exit
"""


def _absolute(ctx: click.Context, param: click.Parameter, path: str | None) -> str:
    """Return the path on the host without . and .., "" for an absent option."""
    if path is None:
        return ""
    if not path.startswith("/"):
        raise click.BadParameter(f"{path!r} is not an absolute path", ctx, param)
    return posixpath.normpath(path)


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@install_options.host_root(required=True)
@install_options.install_dir
@click.option(
    "--engine",
    type=click.Choice(engine_choice.CHOICES),
    default="auto",
    show_default=True,
    help="The engine to configure; auto: the engine that --config belongs to, else the kubelet's, "
    "else a running one.",
)
@click.option(
    "--route",
    type=click.Choice(ROUTES),
    help="How containers get their GPUs, as in `gpuhook configure ENGINE --help`; cdi copies no "
    "programs. Default: wrapper; for podman, hook.",
)
@configure_options.runtime_names(runtime_names.default_sentence())
@click.option("--set-as-default", is_flag=True, help="Make it the default runtime of the engine.")
@click.option("--take-over", is_flag=True, help="Replace another program's runtime with that name.")
@click.option(
    "--config",
    default="",
    callback=parameters.not_empty,
    metavar="FILE",
    help="The path of the engine's configuration file on the host.",
)
@click.option(
    "--drop-in",
    default="",
    callback=parameters.not_empty,
    metavar="FILE",
    help="The path of the drop-in file to write, on the host.",
)
@install_options.restart
@click.option(
    "--tree",
    "tree_path",
    callback=parameters.not_empty,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The runtime tree to copy  [default: the tree of this program]",
)
@click.option(
    "--driver-root",
    default=None,
    callback=_absolute,
    metavar="DIR",
    help="The host directory that contains the driver's user space: the default of driver.root "
    "for the copied programs  [default: each program searches for it]",
)
@click.option(
    "--dev-root",
    default=None,
    callback=_absolute,
    metavar="DIR",
    help="The host directory that contains the driver's /dev: the default of driver.devRoot.",
)
@parameters.dry_run
@click.option("--stay", "stays", is_flag=True, help="Keep running until SIGTERM, as pods must.")
@click.option("--undo-on-exit", is_flag=True, help="With --stay: uninstall on SIGTERM.")
@parameters.output("text", "json", "yaml")
@click.pass_context
def install(ctx: click.Context, /, *, is_dry: bool, output: str, **values: Any) -> None:
    """Install gpuhook on a host from a container, and configure the engine.

    The host needs no Python: the runtime tree includes Python, its libraries and a shell. Existing
    files are not rewritten, and an engine that is already configured is not restarted. An upgrade
    does not affect running containers: the old version remains as long as a container refers to it.
    """
    if values["undo_on_exit"] and not values["stays"]:
        raise click.UsageError("--undo-on-exit needs --stay", ctx)
    if values["stays"] and not is_dry:
        pod_wait.block_signals()
    where = installation.place(values["host_root"], values["install_dir"])
    found = engine_choice.engines(where.root, values["engine"], values["config"])
    route: Route = values["route"] or engine_plan.default_route("".join(found))
    driver = runtime_tree.driver_text(values["driver_root"], values["dev_root"])
    if driver and route == "cdi":
        what = "--driver-root and --dev-root are for the copied programs, but --route cdi copies no"
        raise click.UsageError(f"{what} programs", ctx)
    tree = None
    if route != "cdi":
        tree = runtime_tree.read_tree(values["tree_path"] or runtime_tree.own_tree())
    files = (values["config"], values["drop_in"])
    with console.progress(f"installing in {where.directory}"):
        done = installation.install(
            where,
            tree,
            tuple(configure_engine.Where(one, *files) for one in found),
            _engine_options(where, route, values),
            driver=driver,
            how=values["restart"],
            is_dry=is_dry,
        )
    done = replace(done, notes=_absent_roots(where.root, values))
    install_options.show(done, output, where.directory, is_dry=is_dry, is_taken_away=False)
    if values["stays"] and not is_dry:
        _stay(where, tree, values)


def _engine_options(
    where: installation.InstallPlace, route: Route, values: dict[str, Any]
) -> EngineOptions:
    first, *others = values["names"] or (runtime_names.default_name(where.root),)
    return EngineOptions(
        route=route,
        name=first,
        further_names=tuple(others),
        program=where.program(installation.RUNTIME),
        hook=where.program(installation.PRESTART),
        is_default=values["set_as_default"],
        takes_over=values["take_over"],
    )


def _absent_roots(root: str, values: dict[str, Any]) -> tuple[str, ...]:
    """Return a note for each missing root of the driver: a driver container can start later."""
    options = {f"--{name}": values[name.replace("-", "_")] for name in ("driver-root", "dev-root")}
    return tuple(
        f"{option}: the host has no directory {path}: no container gets a GPU until it exists"
        for option, path in options.items()
        if path and not os.path.isdir(mounted_host.inside(root, path))
    )


def _stay(
    where: installation.InstallPlace, tree: RuntimeTree | None, values: dict[str, Any]
) -> None:
    """Wait for the end of the pod, and uninstall then with --undo-on-exit."""
    signal = pod_wait.wait().name
    if not values["undo_on_exit"]:
        click.echo(f"{signal}: ending", err=True)
    elif installation.is_replaced(where, tree):
        click.echo(f"{signal}: exiting; another version is in use, and is kept", err=True)
    else:
        click.echo(f"{signal}: uninstalling", err=True)
        done = installation.uninstall(where, how=values["restart"])
        install_options.show(done, "text", where.directory, is_dry=False, is_taken_away=True)


_UNINSTALL_EXAMPLES = """
\b
Examples:
  gpuhook node uninstall
  gpuhook node uninstall --host-root /host
  gpuhook node uninstall --host-root /host --dry-run
  gpuhook node uninstall --host-root /host --restart systemd
"""


@click.command(cls=command_sections.SectionedCommand, epilog=_UNINSTALL_EXAMPLES)
@install_options.host_root(default="/")
@install_options.install_dir
@install_options.restart
@parameters.dry_run
@click.option(
    "--force",
    is_flag=True,
    help="Also remove versions that the hooks of containers still refer to.",
)
@parameters.output("text", "json", "yaml")
def uninstall(*, is_dry: bool, force: bool, output: str, **values: Any) -> None:
    """Remove gpuhook from a host: everything that `gpuhook node install` copied and configured.

    This restores the engines' configuration. A version that a container needs is kept:
    run uninstall again after the container has exited. All versions are kept if the state directory
    of an engine cannot be read. With the last version, uninstall also removes the CDI specs that
    call its hook, gpuhook's state and its feature label file.
    """
    where = installation.place(values["host_root"], values["install_dir"])
    with console.progress(f"uninstalling from {where.directory}"):
        done = installation.uninstall(where, how=values["restart"], is_dry=is_dry, forced=force)
    install_options.show(done, output, where.directory, is_dry=is_dry, is_taken_away=True)


@click.group(
    name="node",
    cls=command_sections.Sentences,
    context_settings={"auto_envvar_prefix": "GPUHOOK"},  # as of the hidden `gpuhook node install`
)
def node() -> None:
    """Install gpuhook on a host from a container, and remove it."""


node.add_command(install)
node.add_command(uninstall)
