# SPDX-License-Identifier: Apache-2.0
"""The options that say which node a command is about, and the node itself.

Each has one environment variable for all commands, so that a node is described once.
"""

from __future__ import annotations

import os
from functools import partial, wraps
from typing import Any, TypeVar

import click

from gpuhook.cli.options import parameters
from gpuhook.errors import GpuhookError
from gpuhook.host import console
from gpuhook.host.hot import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from gpuhook.vendors.nvidia.inventory.inventory import Node

F = TypeVar("F", bound="Callable[..., Any]")

_DIRECTORY = click.Path(file_okay=False)
_OF_CONTAINER = (
    "DRIVER_ROOT_CTR_PATH",
    "CONTAINER_DRIVER_ROOT",
)  # see plugin_options.py


def _profiles(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Return the profiles that begin so, for a shell; files where there is none."""
    from click.shell_completion import CompletionItem

    from gpuhook.vendors.nvidia.inventory import dump_file

    found = [CompletionItem(one) for one in dump_file.profiles() if one.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _option(name: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for --name, which GPUHOOK_NAME sets for every command."""
    variable = "GPUHOOK_" + name.upper().replace("-", "_")
    return click.option("--" + name, envvar=variable, show_envvar=True, **settings)


_OPTIONS = (
    _option(
        "inventory",
        metavar="FILE|PROFILE",
        shell_complete=_profiles,
        help="Take the node from a dump (gpuhook inventory -o yaml) or a profile that ships "
        "with gpuhook (t4, a100-mig, ...) instead of from this machine.",
    ),
    _option(
        "driver-root",
        type=_DIRECTORY,
        help="Where the driver's user space is installed. Default: driver.root of the settings, "
        "else /, or the directory of a driver container or of GKE if / has no driver.",
    ),
    _option(
        "dev-root",
        type=_DIRECTORY,
        help="Where the driver's /dev is. Default: driver.devRoot of the settings, or the driver "
        "root if it has a /dev/nvidiactl, else the host root.",
    ),
    parameters.host_root(
        type=click.Path(file_okay=False, exists=True),
        default="/",
        show_default=True,
        help="Where the node's /proc and /sys are.",
    ),
    _option(
        "nvml-library",
        type=click.Path(dir_okay=False),
        help="The libnvidia-ml.so.1 to ask. Default: that of the driver root.",
    ),
    _option(
        "library-search-path",
        type=_DIRECTORY,
        multiple=True,
        help="A directory below the driver root to look for libraries in first; repeatable, "
        "in the environment separated by colons.",
    ),
)
_LIBRARY_OPTIONS = (
    _option(
        "driver-root",
        type=_DIRECTORY,
        help="Where the driver's user space is installed. Default: where generate-cdi found it, "
        "else driver.root of the settings, else where a driver is.",
    ),
    *_OPTIONS[-2:],
)


inventory = _OPTIONS[0]


def node_options(command: F) -> F:
    """Add the node options to a click command; they are the arguments of load_node by name."""
    return _with_options(_placed(command, is_looking=True), _OPTIONS)


def spec_options(command: F) -> F:
    """Add the node options to a command that writes paths of the host."""
    return _with_options(_placed(command), _OPTIONS)


def place_options(command: F) -> F:
    """Add the node options that say where a node's parts are: all but --inventory."""
    return _with_options(_placed(command, is_looking=True), _OPTIONS[1:])


def _with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def root_options(command: F) -> F:
    """Add --driver-root, --dev-root and --host-root to a click command."""
    return _with_options(_placed(command), _OPTIONS[1:4])


def module_root_options(command: F) -> F:
    """Add --driver-root and --host-root, which is where kernel modules are and are loaded."""
    return _with_options(_placed(command), (_OPTIONS[1], _OPTIONS[3]))


def _placed(command: F, *, is_looking: bool = False) -> F:
    """Return a command that gets the settings' driver roots where its options say none.

    One that is only looking gets those of the device plugin's container first, in there.
    """

    @wraps(command)
    def placed(*args: Any, **options: Any) -> Any:
        # The settings are this node's: another host root, a tree, a dump are other nodes.
        is_other = any(options.get(name) for name in ("inventory", "root", "bundle"))
        is_here = not is_other and os.path.abspath(options["host_root"]) == "/"
        if is_looking and not is_other and options["driver_root"] is None:
            options["driver_root"], dev_root = _roots_of_container(options["host_root"])
            if options.get("dev_root") is None and "dev_root" in options:
                options["dev_root"] = dev_root
        options["driver_root"], dev_root = driver_roots(
            options["driver_root"],
            options.get("dev_root"),
            is_here=is_here,
            is_searched=not is_other and not options.get("nvml_library"),
            search_paths=options.get("library_search_path") or (),
        )
        if "dev_root" in options:
            options["dev_root"] = dev_root
        return command(*args, **options)

    return placed  # type: ignore[return-value]  # wraps() has no word for "the same"


def driver_roots(
    driver_root: str | None,
    dev_root: str | None,
    *,
    is_here: bool = True,
    is_searched: bool = True,
    search_paths: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    """Return the driver root and the dev root that apply where the options name none.

    The settings come first, then what `gpuhook install` was called with, then the directories
    that have a driver. A dev root applies to the driver root of the same source: another driver
    has its own /dev. Without `is_searched` the last default is "/".
    """
    if driver_root is not None:
        return driver_root, dev_root
    from gpuhook.vendors.nvidia.driver import driver_locations

    if is_here:
        chosen = _settings()
        root, default_dev_root = chosen.driver_root, chosen.dev_root
        if not root:
            root, installed_dev_root = driver_locations.installed_roots()
            default_dev_root = default_dev_root or installed_dev_root
        dev_root = dev_root if dev_root is not None else default_dev_root or None
        if root:
            return root, dev_root
    return _root_with_driver(search_paths) if is_searched else "/", dev_root


def _roots_of_container(host_root: str = "/") -> tuple[str | None, str | None]:
    """Return the driver root and the dev root in the device plugin's container, None elsewhere."""
    if not any(os.environ.get(name) for name in _OF_CONTAINER):
        return None, None
    from gpuhook.device_plugin.allocate import host_paths

    found = host_paths.environment_places(os.environ, host_root)
    return (found.driver, found.dev) if found else (None, None)


def _root_with_driver(search_paths: tuple[str, ...]) -> str:
    """Return the directory of this host that has a driver, "/" if none has one."""
    from gpuhook.vendors.nvidia.driver import driver_locations

    found = driver_locations.roots_with_driver(search_paths)
    if len(found) > 1:
        others = ", ".join(found[1:])
        console.warn(
            f"there is a driver in {found[0]} and in {others}: {found[0]} is used; set "
            "driver.root of the settings to choose another one"
        )
    return found[0] if found else "/"


def _settings() -> settings.Settings:
    """Return this node's settings, or the defaults with a warning: most commands need no more."""
    try:
        if os.path.exists(settings.path()):
            from gpuhook.node import settings_file  # it loads YAML

            return settings_file.of_node()
        return settings.overridden(settings.Settings())
    except GpuhookError as error:
        console.warn(f"{error.message}: the default of driver.root applies")
        return settings.Settings()


def library_options(command: F) -> F:
    """Add the options that find the NVML library to a click command: the arguments of library()."""
    for option in reversed(_LIBRARY_OPTIONS):
        command = option(command)
    return command


def library(
    driver_root: str | None = None,
    nvml_library: str | None = None,
    library_search_path: tuple[str, ...] = (),
) -> str:
    """Return the host path of the node's NVML library. Raises GH1200, GH1201."""
    from gpuhook.vendors.nvidia.hot import node_json
    from gpuhook.vendors.nvidia.warm import nvml_library as libraries

    if driver_root is None and nvml_library is None:
        known = node_json.nvml()
        if known:
            return known
        driver_root, _ = _roots_of_container()
    if nvml_library is None:
        driver_root, _ = driver_roots(driver_root, None, search_paths=library_search_path)
    return libraries.find(
        driver_root or "/", library=nvml_library, search_paths=library_search_path
    )


def load_node(
    inventory: str | None = None,
    *,
    driver_root: str = "/",
    dev_root: str | None = None,
    host_root: str = "/",
    nvml_library: str | None = None,
    library_search_path: tuple[str, ...] = (),
    require_nodes: bool = True,
    warn_of_losses: bool = True,
) -> Node:
    """Return the node that the options describe, and print its warnings on standard error.

    With `require_nodes`, missing or wrong device nodes of a node that is asked are faults. Without,
    the node is asked for as long as driver_worker.call_driver() waits. A dump is taken as it is.
    Without `warn_of_losses`, the caller reports lost GPUs.
    """
    if inventory is not None:
        from gpuhook.vendors.nvidia.inventory import dump_file

        node = dump_file.load(inventory)
    else:
        from gpuhook.node import driver_worker
        from gpuhook.vendors.nvidia.inventory import discover

        ask = partial(
            discover.node,
            discover.roots(driver_root, dev_root, host_root),
            nvml_library_path=nvml_library,
            library_search_paths=library_search_path,
            require_nodes=require_nodes,
        )
        with console.progress("asking the driver"):
            node = ask() if require_nodes else driver_worker.call_driver(ask)
    tell(node, inventory or driver_root, warn_of_losses=warn_of_losses)
    return node


def tell(node: Node, source: str, *, warn_of_losses: bool = True) -> None:
    """Print a node's warnings on standard error; `source` is where it was found."""
    _log(node, source)
    losses = [] if warn_of_losses else [gpu.loss for gpu in node.gpus]
    for warning in node.warnings:
        if warning not in losses:
            click.echo(f"warning: {warning}", err=True)


def _log(node: Node, source: str) -> None:
    context = click.get_current_context(silent=True)
    if context is None or not context.find_root().params.get("debug"):
        return  # structlog costs 50 ms: it is for those who asked
    from gpuhook.host import logs

    logs.logger().debug(
        "node read",
        source=source,
        driver=node.driver.version,
        nvml=node.driver.nvml,
        gpus=len(node.gpus),
        device_nodes=len(node.device_nodes),
        files=len(node.files),
        fingerprint=node.fingerprint,
    )
