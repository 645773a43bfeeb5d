# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's toolkit: its config.toml, and the programs that config.toml names."""

from __future__ import annotations

from gpuhook.doctor.checks.engine.engine_findings import UNREAD
from gpuhook.doctor.facts.toolkit_settings import (
    PATHS,
    ToolkitSettings,
    files,
    is_legacy,
    is_of_fronts,
)
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.docker_config import GPUS_BY_CDI
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok, unless
from gpuhook.node_facts.engine_facts import dockers
from gpuhook.node_facts.program_facts import BIN_DIRS, program, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.engine_facts import DockerHere

_NO_FILE = "NVIDIA's toolkit has no settings file here and uses its defaults"
_ENDS = "no container with NVIDIA's runtime starts, with or without GPUs"
_SET = "nvidia-ctk config --config-file {} --in-place --set"


_READ = ("nvidia-toolkit.config",)
_VALUES = ("nvidia-toolkit.config", "nvidia-toolkit.values")


@check("nvidia-toolkit.config", "NVIDIA's toolkit can read its config.toml")
@for_each(files, absent(_NO_FILE, *PATHS))
def _config(_node: ExaminedNode, one: ToolkitSettings) -> Finding:
    if one.trouble is None:
        return ok(f"{one.path} can be read", one.path)
    trouble = one.trouble.trouble(one.path)
    meaning = f"{_ENDS}: error loading config: failed to load config"
    command = f"mv {one.path} {one.path}.broken"
    command += f" && nvidia-ctk config default --output {one.path}"
    if trouble.is_unread:
        meaning, command = UNREAD, f"vi +{trouble.where.line or 1} {one.path}"
    message = f"{trouble.where} {trouble.said}"
    return Finding(FAILED, message, one.path, meaning, command, (one.path,))


@check("nvidia-toolkit.values", "The values in config.toml are valid", needs=_READ)
@for_each(files, absent(_NO_FILE, *PATHS))
def _values(_node: ExaminedNode, one: ToolkitSettings) -> Iterable[Finding]:
    found = [
        Finding(
            FAILED,
            f"{one.place(key)} has {key} = {one.of(key)!r}, which {message}",
            subject=key,
            meaning=_ENDS
            if key.endswith(".mode") or not isinstance(one.of(key), str)
            else "containers with GPUs do not start, or start with the wrong settings",
            command=f"sed -i '{one.place(key).line}d' {one.path} # the default then applies",
            looked_at=(one.path,),
        )
        for key, message in one.wrong()
    ]
    yield from found or [ok(f"every value in {one.path} is valid", one.path)]


@check("nvidia-toolkit.keys", "The keys in config.toml are known", needs=_READ)
@for_each(files, absent(_NO_FILE, *PATHS))
def _keys(_node: ExaminedNode, one: ToolkitSettings) -> Iterable[Finding]:
    found = [
        Finding(
            WARNING,
            f"{one.place(key)} has {key}, which is unknown to the toolkit"
            + (f" (did you mean {near}?)" if near else ""),
            subject=key,
            meaning="the toolkit ignores it silently and uses the default",
            command=_corrected(one, key, near),
            looked_at=(one.path,),
        )
        for key, near in one.unknown()
    ]
    yield from found or [ok(f"every key in {one.path} is known", one.path)]


def _corrected(one: ToolkitSettings, key: str, near: str) -> str:
    line, old, new = one.place(key).line, key.rpartition(".")[2], near.rpartition(".")[2]
    return f"sed -i '{line}{f's/{old}/{new}/' if near else 'd'}' {one.path}"


def _provided(node: ExaminedNode) -> Finding | None:
    is_ours = is_of_fronts(node)
    return absent("gpuhook provides the name of NVIDIA's runtime here") if is_ours else None


def _of_runtime(node: ExaminedNode) -> tuple[ToolkitSettings, ...]:
    if files(node) or not program(node.tree, "nvidia-container-runtime"):
        return files(node)
    return (ToolkitSettings(PATHS[0]),)


@check("nvidia-toolkit.low-level", "NVIDIA's runtime finds a low-level runtime", needs=_VALUES)
@unless(_provided)
@for_each(_of_runtime, absent("NVIDIA's runtime is not installed"))
def _low_level(node: ExaminedNode, one: ToolkitSettings) -> Finding:
    found = [path for name in one.runtimes if (path := program(node.tree, name))]
    if found:
        number = version(node, found[0].rpartition("/")[2])
        message = f", version {'.'.join(map(str, number))}" if number else ""
        return ok(f"NVIDIA's runtime starts {found[0]}{message}", one.path, found[0])
    return Finding(
        FAILED,
        f"none of the low-level runtimes {', '.join(one.runtimes)} is in {', '.join(BIN_DIRS)}",
        subject=one.path,
        meaning=f"{_ENDS}: no runtime binary found from candidate list: [{' '.join(one.runtimes)}]",
        command=package_commands.install(node.tree, "runc"),
        looked_at=(one.path, *(f"{place}/runc" for place in BIN_DIRS)),
    )


@check("nvidia-toolkit.programs", "The programs in config.toml exist", needs=_VALUES)
@for_each(files, absent(_NO_FILE, *PATHS))
def _programs(node: ExaminedNode, one: ToolkitSettings) -> Iterable[Finding]:
    found: list[Finding] = []
    install = package_commands.install(node.tree, "nvidia-container-toolkit", again=True)
    for key in ("nvidia-ctk.path", "nvidia-container-runtime-hook.path"):
        path = toml_document.text(one.of(key))
        if path.startswith("/") and program(node.tree, path) is None:
            found.append(_missing(one, key, path, "does not exist or is not executable", install))
    root = toml_document.text(one.of("nvidia-container-cli.root"))
    if root not in {"", "/"} and node.tree.status(root) is None:
        command = f"{_SET.format(one.path)} nvidia-container-cli.root=/"
        found.append(_missing(one, "nvidia-container-cli.root", root, "does not exist", command))
    yield from found or [ok(f"the programs in {one.path} exist", one.path)]


def _missing(one: ToolkitSettings, key: str, path: str, why: str, command: str) -> Finding:
    if key.endswith("root"):
        meaning = (
            "no container gets a GPU: nvidia-container-cli: initialization error: load library"
            " failed: libnvidia-ml.so.1: cannot open shared object file"
        )
    else:
        meaning = f"containers with GPUs do not start: fork/exec {path}: no such file or directory"
    return Finding(
        FAILED,
        f"{one.place(key)} has {key} = {path}, which {why}",
        subject=key,
        meaning=meaning,
        command=command,
        looked_at=(one.path, path),
    )


def _dockers(node: ExaminedNode) -> list[DockerHere]:
    return [one for one in dockers(node) if one.name != "snap"]


def _of_docker(node: ExaminedNode) -> tuple[ToolkitSettings, ...]:
    return files(node) if _dockers(node) else ()


@check("nvidia-toolkit.gpus-flag", "docker run --gpus works", needs=_VALUES)
@for_each(_of_docker, absent("Docker or NVIDIA's toolkit is not installed"))
def _gpus_by_hook(node: ExaminedNode, one: ToolkitSettings) -> Finding:
    skips = one.of("nvidia-container-runtime-hook.skip-mode-detection") is True
    if one.mode in ("auto", "legacy") or skips:
        return ok(f"the mode is {one.mode}", one.path)
    versions = [docker.daemon for docker in _dockers(node)]
    has_hook = program(node.tree, "nvidia-cdi-hook") is not None
    if has_hook and all((number or GPUS_BY_CDI) >= GPUS_BY_CDI for number in versions):
        message = f"the mode is {one.mode}; since Docker 29, --gpus uses CDI"
        if all(versions):
            return ok(message, one.path)
        return absent(f"{message}, and Docker's version is unknown")
    return Finding(
        FAILED,
        f"{one.path} has mode {one.mode}, in which NVIDIA's hook must not be called directly",
        subject="--gpus",
        meaning="docker run --gpus fails: invoking the NVIDIA Container Runtime Hook directly"
        " (e.g. specifying the docker --gpus flag) is not supported",
        command=f"{_SET.format(one.path)} nvidia-container-runtime.mode=auto"
        " # or use: docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all",
        looked_at=(one.path,),
    )


@check(
    "nvidia-toolkit.no-cgroups",
    "Device rules are omitted only for rootless engines",
    needs=_VALUES,
)
@for_each(files, absent(_NO_FILE, *PATHS))
def _no_cgroups(node: ExaminedNode, one: ToolkitSettings) -> Finding:
    legacy = is_legacy(node, one)  # only the legacy mode sets device rules
    rootless = [here for here in dockers(node) if here.name == "rootless"]
    rootful = len(dockers(node)) > len(rootless) or not rootless
    key = "nvidia-container-cli.no-cgroups"
    is_without = one.of(key) is True
    command = _SET.format(one.path)
    if is_without and rootful and legacy is not False:
        return Finding(
            FAILED if legacy else WARNING,
            f"{one.place(key)} has no-cgroups = true, but rootful engines use the toolkit",
            subject=key,
            meaning="containers have the device nodes but cannot open them: Failed to"
            " initialize NVML: Insufficient Permissions (or: Unknown Error)",
            command=f"{command} {key}=false",
            looked_at=(one.path,),
        )
    if not is_without and rootless and legacy is not False:
        return Finding(
            WARNING,
            f"{one.path} has no-cgroups = false, but {rootless[0].path}"
            " belongs to a rootless Docker",
            subject=key,
            meaning="its containers with GPUs do not start: nvidia-container-cli: mount error:"
            " failed to add device rules: bpf_prog_query(BPF_CGROUP_DEVICE) failed:"
            " operation not permitted",
            command=f"{command} {key}=true"
            " # or: docker run --device nvidia.com/gpu=all, which needs no device rules",
            looked_at=(one.path, rootless[0].path),
        )
    return ok(f"no-cgroups is {str(is_without).lower()}", one.path)


CHECKS = (_config, _values, _keys, _low_level, _programs, _gpus_by_hook, _no_cgroups)
