# SPDX-License-Identifier: Apache-2.0
"""Podman: its containers.conf, the CDI specs that it finds, and the OCI hooks that it runs."""

from __future__ import annotations

from gpuhook.doctor.check import ENGINES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import (
    all_is_well,
    installing,
    refused,
    unseen_specs,
    without_cdi_dirs,
    without_program,
)
from gpuhook.doctor.facts.engine_facts import crio_here, podman_here, program, version
from gpuhook.engines.read import oci_hooks
from gpuhook.engines.read import podman_config as reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.oci_hooks import OciHook

NOT_HERE = "podman is not installed"


def config(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether podman can read every file of its configuration."""
    here = podman_here(node)
    if here is None:
        yield absent(NOT_HERE, reader.PATH)
        return
    meaning = (
        f'no podman command works: reading system config "{reader.PATH}": decode configuration'
    )
    found = refused(here.configuration, meaning, "podman info")
    files = here.configuration.files
    yield from all_is_well(found, f"podman reads {', '.join(files) or 'its defaults'}", *files)


def cdi(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether podman gives CDI devices, and finds the specs."""
    here = podman_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    number = version(node, "podman")
    if not reader.has_cdi(number):
        said = f"podman {'.'.join(map(str, number or ()))} knows no CDI, which came with 4.1"
        meaning = (
            "podman run --device nvidia.com/gpu=all fails: stat nvidia.com/gpu=all: no such file"
            " or directory"
        )
        command = installing(node.tree, "podman")
        yield Finding(WARNING, said, meaning=meaning, command=command)
        return
    found = unseen_specs(
        node, "podman", here.configuration, without_cdi_dirs(here.configuration, "")
    )
    said = f"podman looks for CDI specs in {', '.join(here.configuration.cdi_dirs)}"
    yield from all_is_well(found, said, *here.configuration.cdi_dirs)


def binary(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether podman's runtime is there."""
    here = podman_here(node)
    if here is None:
        yield absent(NOT_HERE)
        return
    chosen = here.configuration.runtimes.get(here.configuration.default)
    paths = chosen.options.get("paths", ()) if chosen else ()
    if any(program(node.tree, path) for path in paths):
        yield ok(f'the default runtime is "{here.configuration.default}"')
        return
    found = without_program(
        node.tree,
        [chosen] if chosen else [],
        'no podman container starts: default OCI runtime "{name}" not found: invalid argument',
        f"sed -i 's/^ *runtime *=.*/runtime = \"crun\"/' {' '.join(here.configuration.files)}",
        "podman",
    )
    yield from all_is_well(found, f'the default runtime is "{here.configuration.default}"')


def _hooks(node: ExaminedNode) -> tuple[OciHook, ...]:
    podman, crio = podman_here(node), crio_here(node)
    directories = [*(podman.hook_dirs if podman else ()), *(crio.hook_dirs if crio else ())]
    return oci_hooks.read(node.tree, dict.fromkeys(directories))


def hooks(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the OCI hooks that podman and CRI-O run can be run."""
    if podman_here(node) is None and crio_here(node) is None:
        yield absent("no engine that runs OCI hooks is installed")
        return
    found = _hooks(node)
    broken = [one for one in found if one.reason or not program(node.tree, one.path)]
    for one in broken:
        why = one.reason or f"has {one.path} run, which is not there or may not be run"
        yield Finding(
            FAILED,
            f"{one.file} {why}",
            subject=one.file,
            meaning="containers that the hook is for do not start: error executing hook",
            command=f"rm {one.file} # GPUs come by CDI: podman run --device nvidia.com/gpu=all",
            looked_at=(one.file, one.path),
        )
    if not broken:
        yield ok(f"{len(found)} OCI hooks are installed", *(one.file for one in found))


def two_ways(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a container can get its GPUs twice: by two hooks, or by a hook besides CDI."""
    found = [one for one in _hooks(node) if one.gives_gpus]
    files = tuple(one.file for one in found)
    if len({one.path for one in found}) > 1:
        yield Finding(
            FAILED,
            f"{' and '.join(files)} both give containers GPUs",
            subject=files[0],
            meaning="a container that asks for GPUs gets them twice, and what the second does"
            " fails or undoes the first: error running prestart hook: file exists",
            command=f"rm {files[-1]} # the one that is not to be used",
            looked_at=files,
        )
    elif found:
        yield ok(f"{files[0]} is the only OCI hook that gives GPUs", *files)
    else:
        yield absent("no OCI hook gives GPUs", *reader.HOOK_DIRS)


_READ = ("podman.config",)
CHECKS = (
    Check("podman.config", ENGINES, "podman can read its configuration", config),
    Check("podman.cdi", ENGINES, "podman finds the CDI specs of GPUs", cdi, _READ),
    Check("podman.binary", ENGINES, "podman's runtime can be run", binary, _READ),
    Check("oci-hooks.program", ENGINES, "OCI hooks can be run", hooks, ("podman.config",)),
    Check(
        "oci-hooks.two-stacks",
        ENGINES,
        "One OCI hook gives containers GPUs, not two",
        two_ways,
        ("oci-hooks.program",),
    ),
)
