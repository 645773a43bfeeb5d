# SPDX-License-Identifier: Apache-2.0
"""CRI-O: its default runtime, its GPU runtime, and the CDI specs that it reads."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, Finding, absent, check, ok
from gpuhook.doctor.checks.engine.engine_checks import (
    CRIO_RESTART,
    binary_check,
    config_check,
    not_installed,
    restart_check,
)
from gpuhook.doctor.checks.engine.engine_findings import (
    unregistered_default,
    unseen_specs,
    without_cdi_dirs,
)
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.engine_facts import crio_here, why_no_gpus
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes, runtime_names, spec_dirs
from gpuhook.engines.read import crio_config as reader
from gpuhook.engines.read import oci_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode, Findings

_READ = ("crio.config",)


@check("crio.default", "CRI-O's default runtime is registered", needs=_READ)
def _default(node: ExaminedNode) -> Findings:
    here = crio_here(node)
    if here is None:
        return not_installed("crio")
    configuration = here.configuration
    if configuration.default in configuration.runtimes:
        return ok(f'the default runtime is "{configuration.default}"', *configuration.files)
    found = gpu_runtimes(node.tree, configuration)
    options = register_commands.as_default(configuration.default)
    return unregistered_default(
        "CRI-O",
        configuration,
        "",
        f'CRI-O does not start: default_runtime set to "{configuration.default}", but no'
        " runtime entry was found for it",
        register_commands.with_crio(node, CRIO_RESTART, found[0] if found else None, options),
    )


@check("crio.runtime", "CRI-O can give containers GPUs", needs=_READ)
def _runtime(node: ExaminedNode) -> Iterable[Finding]:
    here = crio_here(node)
    if here is None:
        yield not_installed("crio")
        return
    found = gpu_runtimes(node.tree, here.configuration)
    hooks = [one for one in oci_hooks.read(node.tree, here.hook_dirs) if one.gives_gpus]
    files = here.configuration.files
    if found:
        yield ok(f"runtime {runtime_names(found)} gives GPUs", *files)
    elif hooks:
        yield ok(f"the OCI hook of {hooks[0].file} gives GPUs", hooks[0].file)
    elif spec_dirs(node):
        yield ok("no GPU runtime is registered: containers get GPUs only as CDI devices", *files)
    elif why := why_no_gpus(node, "crio"):
        yield absent(f"CRI-O registers no GPU runtime: {why}")
    else:
        yield Finding(
            FAILED,
            f"CRI-O registers no GPU runtime (only {', '.join(here.configuration.runtimes)})",
            meaning="pods with runtimeClassName: nvidia do not start: failed to find runtime"
            " handler nvidia from runtime list",
            command=register_commands.with_crio(node, CRIO_RESTART),
            looked_at=files or (reader.PATH, reader.DROP_INS),
        )


@check("crio.cdi-dirs", "CRI-O finds the CDI specs of GPUs", needs=_READ)
def _cdi_dirs(node: ExaminedNode) -> Findings:
    here = crio_here(node)
    if here is None:
        return not_installed("crio")
    directories = here.configuration.cdi_dirs
    command = without_cdi_dirs(here.configuration, CRIO_RESTART)
    message = f"CRI-O reads CDI specs in {', '.join(directories)}"
    found = unseen_specs(node, "CRI-O", here.configuration, command)
    return found or [ok(message, *directories)]


CHECKS = (
    config_check("crio"),
    _default,
    _runtime,
    binary_check("crio"),
    _cdi_dirs,
    restart_check("crio", "crio.config", "crio.runtime"),
)
