# SPDX-License-Identifier: Apache-2.0
"""`gpuhook system`: loads kernel modules, creates device nodes and links of the driver."""

from __future__ import annotations

import os
import posixpath
from typing import Any

import click

from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.system import device_links, device_nodes, kernel_modules
from gpuhook.vendors.nvidia.system.expected_nodes import KernelFacts
from gpuhook.vendors.nvidia.system.system_root import (
    CHANGES,
    REFUSE,
    SKIP,
    Step,
    SystemRoot,
    carry_out,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.vendors.nvidia.system.expected_nodes import ExpectedNode

    F = TypeVar("F", bound="Callable[..., Any]")

SCHEMA = "gpuhook/system/v1"
HEADERS = ("ACTION", "WHAT", "HOW OR WHY")

_replace = click.option(
    "--replace",
    "is_replaced",
    is_flag=True,
    help="Replace a wrong node or link, but never a directory.",
)
_load = click.option(
    "--load-kernel-modules", "is_loaded", is_flag=True, help="Load the kernel modules first."
)


@click.group(cls=command_sections.Sentences)
def system() -> None:
    """Prepare this node for GPUs: kernel modules, device nodes, links in /dev/char."""


def _options(command: F) -> F:
    for option in (parameters.no_headers, parameters.output("table", "json", "yaml")):
        command = option(command)
    return command


@system.command(name="load-kernel-modules", cls=command_sections.SectionedCommand)
@click.option(
    "--module",
    "modules",
    metavar="NAME",
    multiple=True,
    default=kernel_modules.MODULES,
    show_default=True,
    show_envvar=True,
    help="A module to load, such as nvidia-fs for GPUDirect Storage; repeatable.",
)
@parameters.dry_run
@node_options.module_root_options
@_options
def load_kernel_modules(modules: tuple[str, ...], **options: Any) -> None:
    """Load the missing kernel modules of the driver.

    With --driver-root, the host's modprobe loads the modules below it.
    """
    for module in modules:
        if not module.replace("-", "").replace("_", "").isalnum():
            raise click.BadParameter(f"{module!r} is not a module name", param_hint="'--module'")
    run = _Run("load-kernel-modules", **options)
    run.load(modules)
    run.report()


@system.command(name="create-device-nodes", cls=command_sections.SectionedCommand)
@click.option(
    "--control-devices",
    "is_control",
    is_flag=True,
    help="Create only control devices: no GPUs and no MIG capabilities.",
)
@_load
@_replace
@parameters.dry_run
@node_options.root_options
@_options
def create_device_nodes(
    is_control: bool, is_loaded: bool, is_replaced: bool, **options: Any
) -> None:
    """Create the missing device nodes of the driver: control devices, GPUs, MIG capabilities.

    Device numbers come from the kernel; mode and owner come from the driver's parameters. Correct
    nodes are not changed; if a node is wrong, the command fails before it creates any. It does not
    create IMEX channels: the administrator decides which of them a container may use.
    """
    run = _Run("create-device-nodes", **options)
    if is_loaded:
        run.load(kernel_modules.MODULES)
    run.make_nodes(is_control=is_control, is_replaced=is_replaced)
    run.report()


@system.command(name="create-dev-char-symlinks", cls=command_sections.SectionedCommand)
@click.option(
    "--create-all",
    "is_all",
    is_flag=True,
    help="Create links for all possible nodes of the installed GPUs, even for nodes that "
    "do not exist.",
)
@click.option(
    "--dev-char-path",
    "directory",
    metavar="DIR",
    default=device_links.DEV_CHAR,
    show_default=True,
    envvar="GPUHOOK_SYSTEM_CREATE_DEV_CHAR_SYMLINKS_DEV_CHAR_PATH",
    show_envvar=True,
    help="The directory of the links, below the dev root.",
)
@click.option(
    "--create-device-nodes", "is_made", is_flag=True, help="Create the device nodes first."
)
@_load
@_replace
@parameters.dry_run
@node_options.root_options
@_options
def create_dev_char_symlinks(
    is_all: bool, directory: str, is_made: bool, is_loaded: bool, is_replaced: bool, **options: Any
) -> None:
    """Create the link /dev/char/MAJOR:MINOR for each device node of the driver.

    udev creates these links for other drivers. Without them, systemd before 240 and runc 1.1.3 to
    1.1.6 take the GPUs from running containers at `systemctl daemon-reload`. If a link is wrong,
    the command fails before it creates any.
    """
    if not directory.startswith("/"):
        raise click.BadParameter("it is not an absolute path", param_hint="'--dev-char-path'")
    run = _Run("create-dev-char-symlinks", **options)
    if is_loaded:
        run.load(kernel_modules.MODULES)
    if is_made:
        run.make_nodes(is_control=False, is_replaced=is_replaced)
    run.link(posixpath.normpath(directory), is_all=is_all, is_replaced=is_replaced)
    run.report()


class _Run:
    """One call of a command: its roots, and the steps that it does or would do."""

    def __init__(
        self,
        command: str,
        *,
        driver_root: str,
        host_root: str,
        dev_root: str | None = None,
        is_dry: bool,
        output: str,
        no_headers: bool,
    ) -> None:
        self._command = command
        self._roots = discover.roots(driver_root, dev_root, host_root)
        for root in (self._roots.dev, self._roots.host):
            if not os.path.isdir(root):
                reason = "it is not a directory"
                raise fault("GH1590", where=root, reason=reason, cure="correct that path")
        self._place = SystemRoot(self._roots.dev)
        self._is_dry = is_dry
        self._output = output
        self._no_headers = no_headers
        self._steps: list[Step] = []
        self._nodes: list[ExpectedNode] = []  # of make_nodes(): a dry run creates none

    def load(self, modules: tuple[str, ...]) -> None:
        """Load kernel modules."""
        for module in modules:  # one may load others
            self._do([kernel_modules.step(self._roots.host, self._roots.driver, module)])

    def make_nodes(self, *, is_control: bool, is_replaced: bool) -> None:
        """Create device nodes."""
        kernel = KernelFacts(self._roots.host)
        expected = kernel.control()
        if not is_control:
            expected += [*kernel.gpus(), *kernel.capabilities()]
        self._nodes = expected
        self._do(device_nodes.steps(self._place, expected, is_replaced=is_replaced))

    def link(self, directory: str, *, is_all: bool, is_replaced: bool) -> None:
        """Create links to device nodes."""
        found = [*device_links.present(self._place), *device_links.possible(self._nodes)]
        if is_all:
            kernel = KernelFacts(self._roots.host)
            expected = [*kernel.control(), *kernel.gpus(), *kernel.possible_capabilities()]
            found += device_links.possible(expected)
        self._do(device_links.steps(self._place, found, directory, is_replaced=is_replaced))

    def _do(self, steps: list[Step]) -> None:
        if not self._is_dry:
            with console.progress("changing the node"):
                carry_out(steps)
        self._steps += steps

    def report(self) -> None:
        """Print the steps; exit with status 1 if one of them is refused."""
        for step in self._steps:
            if step.action == SKIP and self._output != "table":  # the table lists it
                console.warn(f"{step.what} is skipped: {step.says}")
        if self._output == "table":
            lines = [(one.action, one.what, one.says) for one in self._steps]
            if lines:
                console.rows(HEADERS, lines, no_headers=self._no_headers)
            count = sum(one.action in CHANGES for one in self._steps)
            done = "would be changed (dry run)" if self._is_dry else "changed"
            console.say(f"{count} of {len(self._steps)} {done}")
        else:
            document = {
                "schema": SCHEMA,
                "command": self._command,
                "dryRun": self._is_dry,
                "driverRoot": self._roots.driver,
                "devRoot": self._roots.dev,
                "steps": [
                    {"action": one.action, "what": one.what, "says": one.says}
                    for one in self._steps
                ],
            }
            console.document(document, self._output)
        if any(step.action == SKIP for step in self._steps):
            console.say("load missing modules with `gpuhook system load-kernel-modules`")
        if any(one.action == REFUSE for one in self._steps):
            click.get_current_context().exit(1)
