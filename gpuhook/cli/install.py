# SPDX-License-Identifier: Apache-2.0
"""`gpuhook install`: a host gets gpuhook out of its image, and its engine is configured."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import Any

import click

from gpuhook.cli.options import install_options, parameters
from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.engine_plan import NAME, ROUTES, EngineOptions
from gpuhook.install import engine_choice, installation, mounted_host, pod_wait, runtime_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import Route

_EXAMPLES = """
\b
Examples:
  gpuhook install --host-root /host
  gpuhook install --host-root /host --engine containerd --restart systemd
  gpuhook install --host-root /host --engine none --dry-run
  gpuhook install --host-root /host --driver-root /run/nvidia/driver
  gpuhook install --host-root /host --stay --undo-on-exit
"""


def _absolute(ctx: click.Context, param: click.Parameter, path: str | None) -> str:
    """Return the path of the host without . and .., "" for an option that is not given."""
    if path is None:
        return ""
    if not path.startswith("/"):
        raise click.BadParameter(f"{path!r} is not an absolute path", ctx, param)
    return posixpath.normpath(path)


@click.command(epilog=_EXAMPLES)
@install_options.host_root(required=True)
@install_options.install_dir
@click.option(
    "--engine",
    type=click.Choice(engine_choice.CHOICES),
    default="auto",
    show_default=True,
    help="The engine to configure; auto: the engine of --config, else the kubelet's, else one that "
    "runs.",
)
@click.option(
    "--route",
    type=click.Choice(ROUTES),
    help="How containers get their GPUs, as `gpuhook configure` has it; cdi copies nothing. "
    "Default: wrapper, of podman hook.",
)
@click.option("--runtime-name", default=NAME, show_default=True, help="The runtime's name.")
@click.option("--set-as-default", is_flag=True, help="Make it the engine's default runtime.")
@click.option("--take-over", is_flag=True, help="Replace a runtime of that name that is not ours.")
@click.option("--config", default="", metavar="FILE", help="The engine's file, a path of the host.")
@click.option(
    "--drop-in", default="", metavar="FILE", help="The file beside it that is written instead."
)
@install_options.restart
@click.option(
    "--tree",
    "tree_path",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The runtime tree to copy  [default: the one that this program is of]",
)
@click.option(
    "--driver-root",
    default=None,
    callback=_absolute,
    metavar="DIR",
    help="The host's directory that has the driver's user space, for the copied programs: default "
    "of driver.root of the host's settings  [default: searched for by each program]",
)
@click.option(
    "--dev-root",
    default=None,
    callback=_absolute,
    metavar="DIR",
    help="The host's directory that has the driver's /dev: default of driver.devRoot.",
)
@install_options.dry_run
@click.option("--stay", "stays", is_flag=True, help="Do not end until SIGTERM, as a pod has to.")
@click.option("--undo-on-exit", is_flag=True, help="With --stay: uninstall at SIGTERM.")
@parameters.output("text", "json", "yaml")
@click.pass_context
def install(ctx: click.Context, /, *, is_dry: bool, output: str, **said: Any) -> None:
    """Put gpuhook on a host out of a container, and configure its engine.

    The host needs nothing: a Python, its libraries and a shell of their own come along. What is
    there already is not written again, and an engine that is configured is not restarted. An
    upgrade disturbs no container: the old version stays for as long as a container names it.
    """
    if said["undo_on_exit"] and not said["stays"]:
        raise click.UsageError("--undo-on-exit needs --stay", ctx)
    if said["stays"] and not is_dry:
        pod_wait.block_signals()
    where = installation.place(said["host_root"], said["install_dir"])
    found = engine_choice.engines(where.root, said["engine"], said["config"])
    route: Route = said["route"] or ("hook" if found == ("podman",) else "wrapper")
    wanted = EngineOptions(
        route=route,
        name=said["runtime_name"],
        program=where.program(installation.RUNTIME),
        hook=where.program(installation.PRESTART),
        is_default=said["set_as_default"],
        takes_over=said["take_over"],
    )
    driver = runtime_tree.driver_text(said["driver_root"], said["dev_root"])
    if driver and route == "cdi":
        raise click.UsageError(
            "--driver-root and --dev-root are for the copied programs, and --route cdi copies no "
            "programs",
            ctx,
        )
    tree_path = said["tree_path"] or runtime_tree.own_tree()
    copied = None if route == "cdi" else runtime_tree.read_tree(tree_path)
    engines = tuple(configure_engine.Where(one, said["config"], said["drop_in"]) for one in found)
    done = installation.install(
        where, copied, engines, wanted, driver=driver, how=said["restart"], is_dry=is_dry
    )
    done = replace(done, notes=_absent_roots(where.root, said))
    install_options.show(done, output, where.directory, is_dry=is_dry, is_taken_away=False)
    if not said["stays"] or is_dry:
        return
    signal = pod_wait.wait().name
    if said["undo_on_exit"] and installation.is_replaced(where, copied):
        click.echo(f"{signal}: ending; another version is in use by now, and stays", err=True)
        return
    _end(signal, where, said)


def _absent_roots(root: str, said: dict[str, Any]) -> tuple[str, ...]:
    """Return a note for each root of the driver that the host does not have.

    That is not an error: a driver container can start later.
    """
    options = {f"--{name}": said[name.replace("-", "_")] for name in ("driver-root", "dev-root")}
    return tuple(
        f"{option}: the host has no directory {path}: no container gets a GPU until it exists"
        for option, path in options.items()
        if path and not os.path.isdir(mounted_host.inside(root, path))
    )


def _end(signal: str, where: installation.InstallPlace, said: dict[str, Any]) -> None:
    click.echo(f"{signal}: {'uninstalling' if said['undo_on_exit'] else 'ending'}", err=True)
    if said["undo_on_exit"]:
        done = installation.uninstall(where, how=said["restart"])
        install_options.show(done, "text", where.directory, is_dry=False, is_taken_away=True)
