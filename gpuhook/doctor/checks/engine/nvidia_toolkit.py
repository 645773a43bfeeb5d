# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's toolkit: its config.toml, and the programs that this names."""

from __future__ import annotations

from gpuhook.doctor.check import ENGINES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import UNREAD, all_is_well, installing
from gpuhook.doctor.facts.engine_facts import BIN_DIRS, dockers, program, version
from gpuhook.doctor.facts.toolkit_settings import (
    PATHS,
    ToolkitSettings,
    files,
    is_legacy,
    is_of_fronts,
)
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.docker_config import GPUS_BY_CDI

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

_NO_FILE = "NVIDIA's toolkit has no settings file here: it goes by its defaults"
_ENDS = "every container of NVIDIA's runtime fails to start, with GPUs or without"


def config(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the toolkit's config.toml can be read."""
    for one in files(node):
        if one.trouble is None:
            yield ok(f"{one.path} can be read", one.path)
            continue
        trouble = one.trouble.trouble(one.path)
        meaning = f"{_ENDS}: error loading config: failed to load config"
        command = f"mv {one.path} {one.path}.broken"
        command += f" && nvidia-ctk config default --output {one.path}"
        if trouble.is_unread:
            meaning, command = UNREAD, f"vi +{trouble.where.line or 1} {one.path}"
        yield Finding(
            FAILED,
            f"{trouble.where} {trouble.said}",
            subject=one.path,
            meaning=meaning,
            command=command,
            looked_at=(one.path,),
        )
    if not files(node):
        yield absent(_NO_FILE, *PATHS)


def values(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the toolkit takes every value of its config.toml."""
    for one in files(node):
        found = [
            Finding(
                FAILED,
                f"{one.place(key)} has {key} = {one.of(key)!r}, which {said}",
                subject=key,
                meaning=_ENDS
                if key.endswith(".mode") or not isinstance(one.of(key), str)
                else "containers with GPUs do not start, or not by what was meant",
                command=f"sed -i '{one.place(key).line}d' {one.path} # its default is taken then",
                looked_at=(one.path,),
            )
            for key, said in one.wrong()
        ]
        yield from all_is_well(found, f"every value of {one.path} is one that is known", one.path)
    if not files(node):
        yield absent(_NO_FILE, *PATHS)


def keys(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the toolkit knows every key of its config.toml: it ignores others."""
    for one in files(node):
        found = [
            Finding(
                WARNING,
                f"{one.place(key)} has {key}, which the toolkit does not know"
                + (f": {near} is meant" if near else ""),
                subject=key,
                meaning="the toolkit ignores it silently, and goes by its default",
                command=_corrected(one, key, near),
                looked_at=(one.path,),
            )
            for key, near in one.unknown()
        ]
        yield from all_is_well(found, f"every key of {one.path} is one that is known", one.path)
    if not files(node):
        yield absent(_NO_FILE, *PATHS)


def _corrected(one: ToolkitSettings, key: str, near: str) -> str:
    line, old, new = one.place(key).line, key.rpartition(".")[2], near.rpartition(".")[2]
    return f"sed -i '{line}{f's/{old}/{new}/' if near else 'd'}' {one.path}"


def low_level(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a low-level runtime is there for the toolkit's runtime to become."""
    if is_of_fronts(node):
        yield absent("NVIDIA's runtime is gpuhook's here, by its name alone")
        return
    if not files(node) and not program(node.tree, "nvidia-container-runtime"):
        yield absent("NVIDIA's runtime is not installed")
        return
    for one in files(node) or (ToolkitSettings(PATHS[0]),):
        found = [path for name in one.runtimes for path in [program(node.tree, name)] if path]
        if found:
            known = version(node, found[0].rpartition("/")[2])
            said = f", of version {'.'.join(map(str, known))}" if known else ""
            yield ok(f"NVIDIA's runtime becomes {found[0]}{said}", one.path, found[0])
            continue
        yield Finding(
            FAILED,
            f"none of the low-level runtimes {', '.join(one.runtimes)} is in {', '.join(BIN_DIRS)}",
            subject=one.path,
            meaning=f"{_ENDS}: no runtime binary found from candidate list:"
            f" [{' '.join(one.runtimes)}]",
            command=installing(node.tree, "runc"),
            looked_at=(one.path, *(f"{place}/runc" for place in BIN_DIRS)),
        )


def programs(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs and the root that config.toml names are there."""
    for one in files(node):
        found: list[Finding] = []
        install = installing(node.tree, "nvidia-container-toolkit", again=True)
        for key in ("nvidia-ctk.path", "nvidia-container-runtime-hook.path"):
            path = toml_document.text(one.of(key))
            if path.startswith("/") and program(node.tree, path) is None:
                found.append(_missing(one, key, path, "is not there or may not be run", install))
        root = toml_document.text(one.of("nvidia-container-cli.root"))
        if root not in {"", "/"} and node.tree.status(root) is None:
            command = f"nvidia-ctk config --config-file {one.path} --in-place --set"
            cure = f"{command} nvidia-container-cli.root=/"
            found.append(_missing(one, "nvidia-container-cli.root", root, "is not there", cure))
        yield from all_is_well(found, f"what {one.path} names is there", one.path)
    if not files(node):
        yield absent(_NO_FILE, *PATHS)


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


def gpus_by_hook(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether Docker's --gpus, which calls the hook itself, is in a mode that the hook has."""
    here = [one for one in dockers(node) if one.kind != "snap"]
    for one in files(node) if here else ():
        skips = one.of("nvidia-container-runtime-hook.skip-mode-detection") is True
        if one.mode in ("auto", "legacy") or skips:
            yield ok(f"the mode is {one.mode}", one.path)
            continue
        has_hook = program(node.tree, "nvidia-cdi-hook") is not None
        if has_hook and all((docker.daemon or GPUS_BY_CDI) >= GPUS_BY_CDI for docker in here):
            known = all(docker.daemon for docker in here)
            said = f"the mode is {one.mode}, and --gpus goes by CDI since Docker 29"
            yield (ok(said, one.path) if known else absent(f"{said}: of which version is it?"))
            continue
        yield Finding(
            FAILED,
            f"{one.path} has mode {one.mode}, in which NVIDIA's hook does nothing by itself",
            subject="--gpus",
            meaning="docker run --gpus fails: invoking the NVIDIA Container Runtime Hook directly"
            " (e.g. specifying the docker --gpus flag) is not supported",
            command=f"nvidia-ctk config --config-file {one.path} --in-place --set"
            " nvidia-container-runtime.mode=auto"
            " # or use: docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all",
            looked_at=(one.path,),
        )
    if not here or not files(node):
        yield absent("Docker or NVIDIA's toolkit is not installed")


def no_cgroups(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the hook leaves device rules out, which only rootless engines need."""
    for one in files(node):
        legacy = is_legacy(node, one)
        rootless = [here for here in dockers(node) if here.kind == "rootless"]
        rootful = len(dockers(node)) > len(rootless) or not rootless
        leaves_out = one.of("nvidia-container-cli.no-cgroups") is True
        command = f"nvidia-ctk config --config-file {one.path} --in-place --set"
        key = "nvidia-container-cli.no-cgroups"
        if leaves_out and rootful and legacy is not False:
            yield Finding(
                FAILED if legacy else WARNING,
                f"{one.place(key)} has no-cgroups = true, and engines of root use the toolkit",
                subject=key,
                meaning="containers have the device nodes and may not open them: Failed to"
                " initialize NVML: Insufficient Permissions (or: Unknown Error)",
                command=f"{command} {key}=false",
                looked_at=(one.path,),
            )
        elif not leaves_out and rootless and legacy is not False:
            yield Finding(
                WARNING,
                f"{one.path} has no-cgroups = false, and {rootless[0].read.path} is of a rootless"
                " Docker",
                subject=key,
                meaning="its containers with GPUs do not start: nvidia-container-cli: mount error:"
                " failed to add device rules: bpf_prog_query(BPF_CGROUP_DEVICE) failed:"
                " operation not permitted",
                command=f"{command} {key}=true"
                " # or: docker run --device nvidia.com/gpu=all, which needs no rules",
                looked_at=(one.path, rootless[0].read.path),
            )
        else:
            yield ok(f"no-cgroups is {str(leaves_out).lower()}", one.path)
    if not files(node):
        yield absent(_NO_FILE, *PATHS)


_READ = ("nvidia-toolkit.config",)
_VALUES = ("nvidia-toolkit.config", "nvidia-toolkit.values")
CHECKS = (
    Check("nvidia-toolkit.config", ENGINES, "NVIDIA's toolkit can read its config.toml", config),
    Check("nvidia-toolkit.values", ENGINES, "Values of config.toml are valid", values, _READ),
    Check("nvidia-toolkit.keys", ENGINES, "Keys of config.toml are known ones", keys, _READ),
    Check(
        "nvidia-toolkit.low-level",
        ENGINES,
        "NVIDIA's runtime finds a low-level runtime",
        low_level,
        _VALUES,
    ),
    Check("nvidia-toolkit.programs", ENGINES, "What config.toml names is there", programs, _VALUES),
    Check("nvidia-toolkit.gpus-flag", ENGINES, "docker run --gpus works", gpus_by_hook, _VALUES),
    Check(
        "nvidia-toolkit.no-cgroups",
        ENGINES,
        "Device rules are left out for rootless engines alone",
        no_cgroups,
        _VALUES,
    ),
)
