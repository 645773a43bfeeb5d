# SPDX-License-Identifier: Apache-2.0
"""Docker: its GPU runtime, `docker run --gpus`, CDI, and the flags that dockerd is started with."""

from __future__ import annotations

from gpuhook.doctor.checks.engine.engine_checks import (
    HOOK,
    NO_DRIVER,
    UNKNOWN_RUNTIME,
    binary_check,
    config_check,
    default_check,
    not_installed,
    restart_check,
)
from gpuhook.doctor.checks.engine.engine_findings import TOOLKIT, unseen_specs
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.gpu_engine import why_no_gpus
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes, runtime_names, spec_dirs
from gpuhook.engines.read import docker_config as reader
from gpuhook.engines.read import unit_flags
from gpuhook.host import documents
from gpuhook.node_facts import engine_facts, package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import docker_here, dockers
from gpuhook.node_facts.program_facts import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import DockerHere

_CDI_HOOK = "nvidia-cdi-hook"
_INSTALL = "snap remove docker && apt-get install docker.io"
# The flags that concern GPUs, and the members of daemon.json that conflict with them.
_FLAGS = {
    "add-runtime": "runtimes",
    "default-runtime": "default-runtime",
    "cdi-spec-dir": "cdi-spec-dirs",
    "feature": "features",
}
_READ = ("docker.config",)
_RUNTIME = ("docker.config", "docker.snap", "docker.runtime")


def _of_kind(*names: str) -> Callable[[ExaminedNode], list[DockerHere]]:
    return lambda node: [one for one in dockers(node) if one.name in names]


@check("docker.snap", "Docker is not confined by a snap", needs=_READ)
@for_each(_of_kind("snap"), absent("Docker is not a snap", "/var/snap/docker/current"))
def _snap(node: ExaminedNode, one: DockerHere) -> Finding:
    system = docker_here("docker", reader.read(node.tree, reader.PATH))
    here = gpu_runtimes(node.tree, one.configuration)
    there = gpu_runtimes(node.tree, system.configuration)
    if there and not here and not program(node.tree, "dockerd"):
        return Finding(
            FAILED,
            f"{runtime_names(there)} is registered in {reader.PATH}, but Docker is"
            f" a snap, which reads {one.path}",
            subject="snap",
            meaning=f"{UNKNOWN_RUNTIME}; the snap sees no program on the host, so NVIDIA's"
            " runtime does not work in it either",
            command=f"{_INSTALL} && {register_commands.register(node, system, there[0])}",
            looked_at=(reader.PATH, one.path),
        )
    why = f"it has {runtime_names(here)}" if here else why_no_gpus(node, "docker")
    if why:
        return absent(f"Docker is a snap and reads {one.path}: {why}", one.path)
    return Finding(
        WARNING,
        f"Docker is a snap and reads {one.path}",
        subject="snap",
        meaning="it is confined: it cannot find programs and libraries on the host, such"
        " as NVIDIA's (libnvidia-ml.so.1: cannot open shared object file)",
        command=_INSTALL,
        looked_at=("/var/snap/docker/current",),
    )


@check(
    "docker.runtime",
    "Docker can give containers GPUs",
    needs=("docker.config", "docker.snap", "docker.default"),
)
@for_each(dockers, not_installed("docker"))
def _runtime(node: ExaminedNode, one: DockerHere) -> Finding:
    path, configuration = one.path, one.configuration
    if found := gpu_runtimes(node.tree, configuration):
        return ok(f"runtime {runtime_names(found)} gives GPUs", path, subject=one.name)
    if one.read.has_cdi(one.daemon) and spec_dirs(node):
        message = "no GPU runtime is registered: containers get GPUs only as CDI devices"
        return ok(message, path, subject=one.name)
    if why := why_no_gpus(node, "docker"):
        return absent(f"{path} registers no GPU runtime: {why}")
    return Finding(
        FAILED,
        f"{path} registers no GPU runtime (only {', '.join(configuration.runtimes)})",
        subject=one.name,
        meaning=UNKNOWN_RUNTIME,
        command=register_commands.register(node, one),
        looked_at=(path,),
    )


def _with_gpus(node: ExaminedNode) -> list[DockerHere]:
    here = _of_kind("docker", "rootless")(node)
    return [one for one in here if gpu_runtimes(node.tree, one.configuration)]


@check("docker.gpus", "docker run --gpus finds its hook", needs=_RUNTIME)
@for_each(_with_gpus, absent("no Docker here has a GPU runtime"))
def _gpus(node: ExaminedNode, one: DockerHere) -> Finding:
    by_cdi = (one.daemon or (0,)) >= reader.GPUS_BY_CDI and program(node.tree, _CDI_HOOK)
    if path := program(node.tree, HOOK) or by_cdi:
        return ok(f"`--gpus` uses {path}", path, subject=one.name)
    missing = f"{HOOK} is in none of the directories that dockerd searches"
    runtimes = gpu_runtimes(node.tree, one.configuration)
    if any(register_commands.is_gpuhooks(node, runtime) for runtime in runtimes):
        return absent(
            f"{missing}: only `docker run --gpus` needs it (`gpuhook configure docker --route hook`"
            " installs it instead of the runtime)",
            f"/usr/bin/{HOOK}",
        )
    install = package_commands.install(node.tree, TOOLKIT)
    return Finding(
        WARNING,
        missing,
        subject=one.name,
        meaning=f"{NO_DRIVER}; `--runtime nvidia` does not need it",
        command=f"{install} && {one.restart}"
        " # or use: docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all",
        looked_at=(f"/usr/bin/{HOOK}",),
    )


@check("docker.cdi", "Docker finds the CDI specs of GPUs", needs=_READ)
@for_each(dockers, not_installed("docker"))
def _cdi(node: ExaminedNode, one: DockerHere) -> Findings:
    path, configuration = one.path, one.configuration
    if one.read.has_cdi(one.daemon):
        command = f"vi +{one.read.line_of('cdi-spec-dirs')} {path} && {one.restart}"
        return unseen_specs(node, "Docker", one, command) or ok("Docker supports CDI", path)
    is_off = configuration.cdi_enabled is False
    why = f'"features": {{"cdi": false}} in {path}' if is_off else "its version"
    message = f"CDI is disabled in Docker because of {why}"
    if not is_off or gpu_runtimes(node.tree, configuration):
        return ok(message, path, subject=one.name)
    return Finding(
        WARNING,
        message,
        subject=one.name,
        meaning="docker run --device nvidia.com/gpu=all fails: could not select device"
        ' driver "cdi" with capabilities: []',
        command=_enable_cdi(node, one),
        looked_at=(path,),
    )


def _enable_cdi(node: ExaminedNode, one: DockerHere) -> str:
    if engine_facts.has_toolkit(node):
        return f"nvidia-ctk runtime configure --runtime=docker --cdi.enabled && {one.restart}"
    return register_commands.register(node, one, options=" --route cdi")


@check("docker.flags", "No flag of dockerd conflicts with daemon.json", needs=_READ)
@for_each(_of_kind("docker"), absent("no systemd unit starts Docker here"))
def _flags(node: ExaminedNode, one: DockerHere) -> Findings:
    members, flags = _members(one.read.content), unit_flags.unit_flags(node.tree)
    found = [
        Finding(
            FAILED,
            f'{flag.where} starts dockerd with --{flag.name}, but {one.path} has "{key}"',
            subject=flag.name,
            meaning="dockerd does not start: unable to configure the Docker daemon with file"
            f" {one.path}: the following directives are specified both as a flag and in"
            f" the configuration file: {key}",
            command=f"vi +{flag.where.line} {flag.where.path} && systemctl daemon-reload &&"
            f" {one.restart} # without the flag",
            looked_at=(flag.where.path, one.path),
        )
        for flag in flags
        if (key := _FLAGS.get(flag.name, "")) in members
    ]
    return found or ok("no flag of dockerd conflicts with daemon.json", one.path)


def _members(content: bytes) -> frozenset[str]:
    try:
        return frozenset(documents.parse_json_object(content or b"{}"))
    except ValueError:
        return frozenset()  # docker.config reports it


CHECKS = (
    config_check("docker"),
    default_check("docker"),
    _snap,
    _runtime,
    binary_check("docker"),
    _gpus,
    restart_check("docker", *_RUNTIME),
    _cdi,
    _flags,
)
