# SPDX-License-Identifier: Apache-2.0
"""Who gives containers GPUs besides the engine: runtimes in a row, and images that ask."""

from __future__ import annotations

import json
import posixpath

from gpuhook.doctor.check import ENGINES, WARNING, Check, Finding, absent
from gpuhook.doctor.checks.kubernetes import kubelet_facts, plugin_files
from gpuhook.doctor.engine_findings import all_is_well
from gpuhook.doctor.facts.engine_facts import containerds, crio_here, kubelet, program
from gpuhook.doctor.facts.toolkit_settings import PATHS, files
from gpuhook.engines.read import engine_config
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, NVIDIA_RUNTIME
from gpuhook.vendors.nvidia.driver.driver_locations import OPERATOR_TOOLKIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.toolkit_settings import ToolkitSettings
    from gpuhook.engines.read.engine_config import EngineConfiguration

_BY_ENV = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_BY_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


def in_a_row(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether one GPU runtime calls another, so that both work on a container."""
    for one in files(node):
        paths = [path for name in one.runtimes for path in [program(node.tree, name)] if path]
        found = []
        if paths and posixpath.basename(paths[0]) == GPUHOOK_RUNTIME:
            found = [
                Finding(
                    WARNING,
                    f"{one.place('nvidia-container-runtime.runtimes')} has NVIDIA's runtime call"
                    f" {paths[0]}, and both give containers GPUs",
                    subject=one.path,
                    meaning="a container that asks for GPUs is worked on twice: its environment"
                    " says NVIDIA_VISIBLE_DEVICES=void when the second looks",
                    command=f"nvidia-ctk config --config-file {one.path} --in-place --set"
                    " nvidia-container-runtime.runtimes=runc:crun",
                    looked_at=(one.path,),
                )
            ]
        yield from all_is_well(found, "NVIDIA's runtime calls no other GPU runtime", one.path)
    if not files(node):
        yield absent("NVIDIA's toolkit has no settings file here", *PATHS)


def by_image(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether pods that were given no GPU can take all, because their image says so."""
    if not kubelet(node):
        yield absent("no kubelet is here: who starts a container chooses its GPUs")
        return
    found = [
        _open_to_all(node, configuration, has_cdi, settings)
        for configuration, has_cdi in _with_default(node)
        for settings in [_settings_of(node, configuration)]
        if settings is None or settings.of(_BY_ENV) is not False
    ]
    said = "what an image asks for gives no GPU to a pod that was given none"
    yield from all_is_well(found, said)


def _open_to_all(
    node: ExaminedNode,
    configuration: EngineConfiguration,
    has_cdi: bool,
    settings: ToolkitSettings | None,
) -> Finding:
    path = settings.path if settings else PATHS[0]
    said = "lets" if settings else "is not there, so that its default lets"
    return Finding(
        WARNING,
        f'"{configuration.default}" is the default runtime of {configuration.engine}, and {path}'
        f" {said} unprivileged containers choose GPUs by their environment",
        subject=configuration.engine,
        meaning="every pod whose image sets NVIDIA_VISIBLE_DEVICES=all, as nvidia/cuda does, sees"
        " all GPUs of the node without having been given one",
        command=_closing(node, path, has_cdi=has_cdi),
        looked_at=(path, *configuration.files),
    )


def _closing(node: ExaminedNode, path: str, *, has_cdi: bool) -> str:
    """Return the command that has the environment of containers not count.

    A device plugin that hands its GPUs over in the environment, as NVIDIA's does by default, is
    told first to do so otherwise: else no pod gets any.
    """
    used = {
        strategy
        for _, configuration in node.once(plugin_files.in_use)
        for strategy in configuration.flags.plugin.device_list_strategy
    }
    is_ready = bool(used) and "envvar" not in used
    strategy = "cdi-cri" if has_cdi else "volume-mounts"
    if path.startswith(OPERATOR_TOOLKIT):
        return _operators(strategy, is_ready=is_ready)
    mounts = "" if is_ready or has_cdi else f" --set {_BY_MOUNTS}=true"
    closed = f"nvidia-ctk config --config-file {path} --in-place --set {_BY_ENV}=false{mounts}"
    if is_ready:
        return closed
    pods = [pod for pod in node.once(kubelet_facts.pods) if pod.daemon_set]
    if not pods:
        return (
            f"{closed} # but first have the device plugin use DEVICE_LIST_STRATEGY={strategy}:"
            " with envvar, its default, no pod gets a GPU any more"
        )
    told = f"kubectl -n {pods[0].namespace} set env daemonset/{pods[0].daemon_set}"
    return f"{told} DEVICE_LIST_STRATEGY={strategy} && {closed}"


def _operators(strategy: str, *, is_ready: bool) -> str:
    """Return the command for the GPU operator, which writes the file anew at every start."""
    env = [("ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "false")]
    if strategy == "volume-mounts" and not is_ready:
        env.append(("ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "true"))
    patch: dict[str, object] = {"toolkit": _env(env)}
    if not is_ready:
        patch["devicePlugin"] = _env([("DEVICE_LIST_STRATEGY", strategy)])
    told = json.dumps({"spec": patch})
    return f"kubectl patch clusterpolicy cluster-policy --type merge -p '{told}'"


def _env(pairs: list[tuple[str, str]]) -> dict[str, object]:
    return {"env": [{"name": name, "value": value} for name, value in pairs]}


def _settings_of(node: ExaminedNode, configuration: EngineConfiguration) -> ToolkitSettings | None:
    """Return the settings file of the default runtime: the operator's toolkit has its own."""
    path = configuration.runtimes[configuration.default].path
    wanted = PATHS[1] if path.startswith(OPERATOR_TOOLKIT) else PATHS[0]
    return next((one for one in files(node) if one.path == wanted), None)


def _with_default(node: ExaminedNode) -> list[tuple[EngineConfiguration, bool]]:
    """Return the engines whose default runtime is NVIDIA's, and whether each does CDI."""
    crio = crio_here(node)
    found = [
        (one.read.configuration, one.read.has_cdi(one.daemon))
        for one in containerds(node)
        if one.read.has_cri
    ]
    found += [(crio.configuration, True)] if crio else []
    return [
        (configuration, has_cdi)
        for configuration, has_cdi in found
        if (chosen := configuration.runtimes.get(configuration.default))
        and NVIDIA_RUNTIME in posixpath.basename(chosen.path)
        and not engine_config.is_front(node.tree, chosen.path)
    ]


CHECKS = (
    Check(
        "nvidia-toolkit.two-stacks",
        ENGINES,
        "NVIDIA's runtime calls no other runtime that gives GPUs",
        in_a_row,
        ("nvidia-toolkit.config", "nvidia-toolkit.values", "nvidia-toolkit.low-level"),
    ),
    Check(
        "nvidia-toolkit.images",
        ENGINES,
        "Pods that were given no GPU see none",
        by_image,
        ("nvidia-toolkit.config", "containerd.config", "containerd.default", "crio.config"),
    ),
)
