# SPDX-License-Identifier: Apache-2.0
"""CRI-O: its drop-ins, its GPU runtime, and the CDI specs that it finds."""

from __future__ import annotations

from gpuhook.doctor import register_commands
from gpuhook.doctor.check import ENGINES, FAILED, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import (
    all_is_well,
    gpu_runtimes,
    installing,
    named,
    not_read_yet,
    refused,
    spec_dirs,
    unseen_specs,
    without_cdi_dirs,
    without_program,
)
from gpuhook.doctor.facts.engine_facts import crio_here, processes, why_no_gpus
from gpuhook.engines.read import crio_config as reader
from gpuhook.engines.read import oci_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.engine_config import EngineConfiguration

NOT_HERE = "CRI-O is not installed"
_RESTART = "systemctl restart crio"


def config(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether CRI-O can read every file of its configuration."""
    here = crio_here(node)
    if here is None:
        yield absent(NOT_HERE, reader.PATH)
        return
    found = refused(here.configuration, "CRI-O does not start, and with it no pod", _RESTART)
    files = here.configuration.files
    yield from all_is_well(found, f"CRI-O reads {', '.join(files) or 'its defaults'}", *files)


def default(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the default runtime is a registered one."""
    here = crio_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    configuration = here.configuration
    if configuration.default in configuration.runtimes:
        yield ok(f'the default runtime is "{configuration.default}"', *configuration.files)
        return
    yield Finding(
        FAILED,
        f'the default runtime "{configuration.default}" is not registered'
        f" ({', '.join(configuration.runtimes)})",
        meaning="CRI-O does not start: default_runtime set to"
        f' "{configuration.default}", but no runtime entry was found for it',
        command=_cure_of_default(node, configuration),
        looked_at=configuration.files,
    )


def _cure_of_default(node: ExaminedNode, configuration: EngineConfiguration) -> str:
    found = gpu_runtimes(node.tree, configuration)
    options = register_commands.as_default(configuration.default)
    return register_commands.with_crio(node, _RESTART, found[0] if found else None, options)


def runtime(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether CRI-O has a way to give containers GPUs."""
    here = crio_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    found = gpu_runtimes(node.tree, here.configuration)
    hooks = [one for one in oci_hooks.read(node.tree, here.hook_dirs) if one.gives_gpus]
    files = here.configuration.files
    if found:
        yield ok(f"runtime {named(found)} gives GPUs", *files)
    elif hooks:
        yield ok(f"the OCI hook of {hooks[0].file} gives GPUs", hooks[0].file)
    elif spec_dirs(node):
        yield ok("no GPU runtime is registered: containers get GPUs as CDI devices alone", *files)
    elif not (why := why_no_gpus(node, "crio")):
        yield Finding(
            FAILED,
            f"CRI-O registers no GPU runtime ({', '.join(here.configuration.runtimes)} alone)",
            meaning="pods with runtimeClassName: nvidia do not start: failed to find runtime"
            " handler nvidia from runtime list",
            command=register_commands.with_crio(node, _RESTART),
            looked_at=files or (reader.PATH, reader.DROP_INS),
        )
    else:
        yield absent(f"CRI-O registers no GPU runtime: {why}")


def binary(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs of the registered runtimes can be run."""
    here = crio_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    meaning = "CRI-O leaves the runtime out or does not start: invalid runtime_path for runtime"
    found = without_program(
        node.tree,
        here.configuration.runtimes.values(),
        f"{meaning} '{{name}}'",
        f"{installing(node.tree, 'nvidia-container-toolkit', again=True)} && {_RESTART}",
        "crio",
    )
    yield from all_is_well(found, "the programs of CRI-O's runtimes are there")


def cdi_dirs(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether CRI-O finds the CDI specs that are there."""
    here = crio_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    found = unseen_specs(
        node, "CRI-O", here.configuration, without_cdi_dirs(here.configuration, _RESTART)
    )
    said = f"CRI-O looks for CDI specs in {', '.join(here.configuration.cdi_dirs)}"
    yield from all_is_well(found, said, *here.configuration.cdi_dirs)


def restarted(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether CRI-O was started after its configuration was written; it may be reloaded."""
    here = crio_here(node)
    started = [float(one.get("started") or 0) for one in processes(node, "crio")]
    if here is None or not started:
        yield absent("no running CRI-O is known here, so since when cannot be told")
        return
    files = here.configuration.files
    literal = "failed to find runtime handler nvidia from runtime list"
    found = not_read_yet(node.tree, "CRI-O", files, max(started), _RESTART, literal=literal)
    yield from all_is_well(found, "CRI-O was started after its files were written", *files)


_READ = ("crio.config",)
CHECKS = (
    Check("crio.config", ENGINES, "CRI-O can read its configuration", config),
    Check("crio.default", ENGINES, "CRI-O's default runtime is registered", default, _READ),
    Check("crio.runtime", ENGINES, "CRI-O can give containers GPUs", runtime, _READ),
    Check("crio.binary", ENGINES, "The programs of CRI-O's runtimes can be run", binary, _READ),
    Check("crio.cdi-dirs", ENGINES, "CRI-O finds the CDI specs of GPUs", cdi_dirs, _READ),
    Check(
        "crio.restarted",
        ENGINES,
        "CRI-O was started after its configuration was written",
        restarted,
        ("crio.config", "crio.runtime"),
    ),
)
