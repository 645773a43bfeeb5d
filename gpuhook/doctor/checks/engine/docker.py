# SPDX-License-Identifier: Apache-2.0
"""Docker: its daemon.json, its GPU runtime, and what `docker run --gpus` needs."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.doctor import register_commands
from gpuhook.doctor.check import ENGINES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import (
    AT_ONCE,
    all_is_well,
    gpu_runtimes,
    installing,
    named,
    not_read_yet,
    refused,
    spec_dirs,
    unseen_specs,
    without_program,
)
from gpuhook.doctor.facts import spec_facts
from gpuhook.doctor.facts.engine_facts import dockers, program, why_no_gpus
from gpuhook.engines.read import docker_config as reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import DockerHere

NOT_HERE = "Docker is not installed"
HOOK, CDI_HOOK = "nvidia-container-runtime-hook", "nvidia-cdi-hook"
UNKNOWN_RUNTIME = "docker: Error response from daemon: unknown or invalid runtime name: nvidia"
NO_DRIVER = 'docker run --gpus fails: could not select device driver "" with capabilities: [[gpu]]'
_TOOLKIT = "nvidia-container-toolkit"


def config(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether Docker can read its daemon.json, and knows its default runtime."""
    for one in dockers(node):
        meaning = (
            "dockerd does not start: unable to configure the Docker daemon with file"
            f" {one.read.path}"
        )
        command = f"dockerd --validate --config-file={one.read.path} && {one.restart}"
        found = refused(one.read.configuration, meaning, command)
        read = one.read.configuration.files
        said = f"{one.read.path} {'can be read' if read else 'is not there: Docker has defaults'}"
        yield from all_is_well(found, said, one.read.path)
    if not dockers(node):
        yield absent(NOT_HERE, reader.PATH)


def default(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the default runtime is a registered one."""
    for one in dockers(node):
        configuration = one.read.configuration
        chosen = configuration.default
        if chosen in configuration.runtimes or chosen.startswith("io.containerd."):
            yield ok(f'the default runtime is "{chosen}"', one.read.path, subject=one.kind)
        else:
            yield Finding(
                FAILED,
                f'{one.read.path} has the default runtime "{chosen}", which it does not register'
                f" ({', '.join(configuration.runtimes)})",
                subject=one.kind,
                meaning="dockerd does not start: unable to configure the Docker daemon: specified"
                f" default runtime '{chosen}' does not exist",
                command=_cure_of_default(node, one),
                looked_at=(one.read.path,),
            )
    if not dockers(node):
        yield absent(NOT_HERE)


def _cure_of_default(node: ExaminedNode, one: DockerHere) -> str:
    found = gpu_runtimes(node.tree, one.read.configuration)
    options = register_commands.as_default(one.read.configuration.default)
    return register_commands.with_docker(node, one, found[0] if found else None, options)


def snap(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the snap's Docker is told of GPUs where it looks."""
    snaps = [one for one in dockers(node) if one.kind == "snap"]
    system = reader.read(node.tree, reader.PATH)
    for one in snaps:
        here = gpu_runtimes(node.tree, one.read.configuration)
        there = gpu_runtimes(node.tree, system.configuration)
        if there and not here and not program(node.tree, "dockerd"):
            yield Finding(
                FAILED,
                f"{named(there)} is registered in {reader.PATH}, and Docker is of the snap, which"
                f" reads {one.read.path}",
                subject="snap",
                meaning=f"{UNKNOWN_RUNTIME}; the snap sees no program of the host, so that NVIDIA's"
                " runtime does not work in it either",
                command="snap remove docker && apt-get install docker.io && "
                + register_commands.with_docker(node, replace(one, kind="docker"), there[0]),
                looked_at=(reader.PATH, one.read.path),
            )
        elif here or why_no_gpus(node, "docker"):
            why = f"it has {named(here)}" if here else why_no_gpus(node, "docker")
            yield absent(f"Docker is of the snap, and reads {one.read.path}: {why}", one.read.path)
        else:
            yield Finding(
                WARNING,
                f"Docker is of the snap, and reads {one.read.path}",
                subject="snap",
                meaning="it is confined: programs and libraries of the host, NVIDIA's among them,"
                " are not where it looks (libnvidia-ml.so.1: cannot open shared object file)",
                command="snap remove docker && apt-get install docker.io",
                looked_at=("/var/snap/docker/current",),
            )
    if not snaps:
        yield absent("Docker is not of a snap", "/var/snap/docker/current")


def runtime(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether Docker has a runtime that gives GPUs, or can give them as CDI devices."""
    for one in dockers(node):
        found = gpu_runtimes(node.tree, one.read.configuration)
        if found:
            yield ok(f"runtime {named(found)} gives GPUs", one.read.path, subject=one.kind)
        elif one.read.has_cdi(one.daemon) and spec_dirs(node):
            said = "no GPU runtime is registered: containers get GPUs as CDI devices alone"
            yield ok(said, one.read.path, subject=one.kind)
        elif not (why := why_no_gpus(node, "docker")):
            yield Finding(
                FAILED,
                f"{one.read.path} registers no GPU runtime"
                f" ({', '.join(one.read.configuration.runtimes)} alone)",
                subject=one.kind,
                meaning=UNKNOWN_RUNTIME,
                command=register_commands.with_docker(node, one),
                looked_at=(one.read.path,),
            )
        else:
            yield absent(f"{one.read.path} registers no GPU runtime: {why}")
    if not dockers(node):
        yield absent(NOT_HERE)


def binary(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs of the registered runtimes can be run."""
    for one in dockers(node):
        if one.kind == "snap":
            yield absent("the snap has its programs within itself", one.read.path)
            continue
        found = without_program(
            node.tree,
            one.read.configuration.runtimes.values(),
            'docker run --runtime {name} fails: exec: "{path}": executable file not found in $PATH',
            f"{installing(node.tree, _TOOLKIT)} && {one.restart}",
            "docker",
        )
        yield from all_is_well(found, f"the programs of {one.read.path}'s runtimes are there")
    if not dockers(node):
        yield absent(NOT_HERE)


def gpus(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether `docker run --gpus` has the program that dockerd looks for at its start."""
    here = [
        one
        for one in dockers(node)
        if one.kind != "snap" and gpu_runtimes(node.tree, one.read.configuration)
    ]
    hook = program(node.tree, HOOK)
    for one in here:
        by_cdi = (one.daemon or (0,)) >= reader.GPUS_BY_CDI and program(node.tree, CDI_HOOK)
        if hook or by_cdi:
            yield ok(f"`--gpus` goes by {hook or by_cdi}", str(hook or by_cdi), subject=one.kind)
        else:
            yield Finding(
                FAILED,
                f"{HOOK} is in none of the directories in which dockerd looks",
                subject=one.kind,
                meaning=NO_DRIVER,
                command=f"{installing(node.tree, _TOOLKIT)} && {one.restart}"
                " # or use: docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all",
                looked_at=(f"/usr/bin/{HOOK}",),
            )
    if not here:
        yield absent("no Docker here has a GPU runtime")


def restarted(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether dockerd was started after what it looks for was there."""
    hook = program(node.tree, HOOK)
    here = [one for one in dockers(node) if one.started and hook]
    for one in here:
        status = node.tree.status(hook or "")
        files = one.read.configuration.files
        found = not_read_yet(
            node.tree,
            "dockerd",
            files,
            one.started or 0.0,
            one.restart,
            literal=UNKNOWN_RUNTIME,
        )
        if status and status.mtime > (one.started or 0.0) + AT_ONCE:
            found.append(
                Finding(
                    WARNING,
                    f"{hook} was installed or changed after dockerd was started",
                    subject=one.kind,
                    meaning=NO_DRIVER,
                    command=one.restart,
                    looked_at=(str(hook),),
                )
            )
        yield from all_is_well(found, "dockerd was started after what it reads", *files)
    if not here:
        yield absent("no running dockerd is known here, so since when cannot be told")


def cdi(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether Docker gives CDI devices, and finds the specs."""
    for one in dockers(node):
        if not one.read.has_cdi(one.daemon):
            is_off = one.read.configuration.cdi_enabled is False
            why = f'"features": {{"cdi": false}} of {one.read.path}' if is_off else "its version"
            said = f"CDI is off in Docker by {why}"
            if not is_off or gpu_runtimes(node.tree, one.read.configuration):
                yield ok(said, one.read.path, subject=one.kind)
                continue
            yield Finding(
                WARNING,
                said,
                subject=one.kind,
                meaning="docker run --device nvidia.com/gpu=all fails: could not select device"
                ' driver "cdi" with capabilities: []',
                command=_with_cdi(node, one),
                looked_at=(one.read.path,),
            )
            continue
        line = one.read.line_of("cdi-spec-dirs")
        cure = f"vi +{line} {one.read.path} && {one.restart}"
        found = unseen_specs(node, "Docker", one.read.configuration, cure)
        yield from all_is_well(found, "Docker does CDI", one.read.path)
    if not dockers(node):
        yield absent(NOT_HERE)


def _with_cdi(node: ExaminedNode, one: DockerHere) -> str:
    """Return the command that switches CDI on, where no GPU runtime is registered."""
    if spec_facts.has_toolkit(node):
        return f"nvidia-ctk runtime configure --runtime=docker --cdi.enabled && {one.restart}"
    return register_commands.with_docker(node, one, options=" --route cdi")


_READ = ("docker.config",)
_RUNTIME = ("docker.config", "docker.snap", "docker.runtime")
CHECKS = (
    Check("docker.config", ENGINES, "Docker can read its daemon.json", config),
    Check("docker.default", ENGINES, "Docker's default runtime is registered", default, _READ),
    Check("docker.snap", ENGINES, "Docker is not confined by a snap", snap, _READ),
    Check(
        "docker.runtime",
        ENGINES,
        "Docker can give containers GPUs",
        runtime,
        ("docker.config", "docker.snap", "docker.default"),
    ),
    Check("docker.binary", ENGINES, "The programs of Docker's runtimes can be run", binary, _READ),
    Check("docker.gpus", ENGINES, "docker run --gpus finds its hook", gpus, _RUNTIME),
    Check(
        "docker.restarted",
        ENGINES,
        "dockerd was started after its configuration was written",
        restarted,
        _RUNTIME,
    ),
    Check("docker.cdi", ENGINES, "Docker finds the CDI specs of GPUs", cdi, _READ),
)
