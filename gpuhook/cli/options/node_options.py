# SPDX-License-Identifier: Apache-2.0
"""The options that select the node of a command, and the node itself.

Each option has one environment variable for all commands.
"""

from __future__ import annotations

import os
from functools import partial, wraps
from typing import Any

import click

from gpuhook.cli.options import driver_roots, parameters
from gpuhook.host import console, system_mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from gpuhook.cli.options.parameters import F
    from gpuhook.vendors.nvidia.inventory.inventory import Node

_DIRECTORY = click.Path(file_okay=False)


def _profiles(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Return the profiles with this prefix for shell completion, or files if no profile has it."""
    from click.shell_completion import CompletionItem

    from gpuhook.vendors import inventory_file

    found = [CompletionItem(one) for one in inventory_file.profiles() if one.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _option(name: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for --name, which GPUHOOK_NAME sets in every command."""
    variable = "GPUHOOK_" + name.upper().replace("-", "_")
    return click.option("--" + name, envvar=variable, show_envvar=True, **settings)


_OPTIONS = (
    _option(
        "inventory",
        metavar="FILE|PROFILE",
        callback=parameters.not_empty,
        shell_complete=_profiles,
        help="Use a dump (gpuhook inventory -o yaml) or a built-in profile "
        "(t4, a100-mig, mi300x8, ...) instead of this machine.",
    ),
    _option(
        "driver-root",
        type=_DIRECTORY,
        callback=parameters.not_empty,
        help=(
            "The directory where the driver's user space is installed. Default: driver.root of "
            "the settings, "
            "else /, or the directory of a driver container or of GKE if / has no driver."
        ),
    ),
    _option(
        "dev-root",
        type=_DIRECTORY,
        callback=parameters.not_empty,
        help=(
            "The directory that contains the driver's /dev. Default: driver.devRoot of the "
            "settings, or the driver "
            "root if it has a /dev/nvidiactl, else the host root."
        ),
    ),
    parameters.host_root(
        type=click.Path(file_okay=False, exists=True),
        default="/",
        show_default=True,
        help="The directory that contains the node's /proc and /sys.",
    ),
    _option(
        "nvml-library",
        type=click.Path(dir_okay=False),
        callback=parameters.not_empty,
        help="The libnvidia-ml.so.1 to load. Default: the library below the driver root.",
    ),
    _option(
        "library-search-path",
        type=_DIRECTORY,
        multiple=True,
        callback=parameters.not_empty,
        help=(
            "A directory below the driver root to search for libraries first; repeatable, "
            "colon-separated "
            "in the environment."
        ),
    ),
)
_LIBRARY_OPTIONS = (
    _option(
        "driver-root",
        type=_DIRECTORY,
        callback=parameters.not_empty,
        help=(
            "The directory where the driver's user space is installed. Default: the root that "
            "generate-cdi "
            "found, else driver.root of the settings, else a directory with a driver."
        ),
    ),
    *_OPTIONS[-2:],
)


inventory = _OPTIONS[0]


def node_options(command: F) -> F:
    """Add the node options to a click command; they are the arguments of load_node by name."""
    return parameters.with_options(_placed(command, is_looking=True), _OPTIONS)


def spec_options(command: F) -> F:
    """Add the node options to a command that writes paths of the host."""
    return parameters.with_options(_placed(command), _OPTIONS)


def place_options(command: F) -> F:
    """Add all node options but --inventory."""
    return parameters.with_options(_placed(command, is_looking=True), _OPTIONS[1:])


def root_options(command: F) -> F:
    """Add --driver-root, --dev-root and --host-root to a click command."""
    return parameters.with_options(_placed(command), _OPTIONS[1:4])


def module_root_options(command: F) -> F:
    """Add --driver-root and --host-root, which is where kernel modules are and are loaded."""
    return parameters.with_options(_placed(command), (_OPTIONS[1], _OPTIONS[3]))


def _placed(command: F, *, is_looking: bool = False) -> F:
    """Return a command that gets the driver roots of the settings if its options name none.

    With `is_looking`, the roots of the device plugin's container come first, in that container.
    """

    @wraps(command)
    def placed(*args: Any, **options: Any) -> Any:
        # The settings are of this node: another host root, a tree or a dump is another node.
        is_other = any(options.get(name) for name in ("inventory", "root", "bundle"))
        is_here = not is_other and os.path.abspath(options["host_root"]) == "/"
        if is_looking and not is_other and options["driver_root"] is None:
            options["driver_root"], dev_root = driver_roots.container_roots(options["host_root"])
            if options.get("dev_root") is None and "dev_root" in options:
                options["dev_root"] = dev_root
        options["driver_root"], dev_root = driver_roots.driver_roots(
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


def library_options(command: F) -> F:
    """Add the options that find the NVML library to a click command: the arguments of library()."""
    return parameters.with_options(command, _LIBRARY_OPTIONS)


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
        driver_root, _ = driver_roots.container_roots()
    if nvml_library is None:
        driver_root, _ = driver_roots.driver_roots(
            driver_root, None, search_paths=library_search_path
        )
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

    With `require_nodes`, missing or wrong device nodes of a live node are faults. Without it, the
    driver is called in a child process with the deadline of driver_worker.call_driver(). A dump is
    not checked. Without `warn_of_losses`, the caller reports lost GPUs.
    """
    if inventory is not None:
        from gpuhook.vendors.nvidia.inventory import dump_file

        node = dump_file.load(inventory)
    else:
        system_mounts.require()
        from gpuhook.vendors import driver_worker
        from gpuhook.vendors.nvidia import discover

        ask = partial(
            discover.node,
            discover.roots(
                driver_root,
                dev_root,
                host_root,
                nvml_library=nvml_library,
                library_search_paths=library_search_path,
            ),
            require_nodes=require_nodes,
        )
        with console.progress("asking the driver"):
            node = ask() if require_nodes else driver_worker.call_driver(ask)
    print_warnings(node, inventory or driver_root, warn_of_losses=warn_of_losses)
    return node


def print_warnings(node: Node, source: str, *, warn_of_losses: bool = True) -> None:
    """Print a node's warnings on standard error; `source` is the driver root or the dump."""
    _log(node, source)
    losses = [] if warn_of_losses else [gpu.loss for gpu in node.gpus]
    for warning in node.warnings:
        if warning not in losses:
            click.echo(f"warning: {warning}", err=True)


def _log(node: Node, source: str) -> None:
    context = click.get_current_context(silent=True)
    if context is None or not context.find_root().params.get("debug"):
        return  # structlog costs 50 ms
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
