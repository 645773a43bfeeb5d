# SPDX-License-Identifier: Apache-2.0
"""Containers that get GPUs twice, or that get GPUs which no one assigned to them."""

from __future__ import annotations

import json
import posixpath

from gpuhook.doctor.checks.kubernetes import plugin_files
from gpuhook.doctor.facts.toolkit_settings import OPERATOR_TOOLKIT, PATHS, files
from gpuhook.engines.read import engine_config
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, NVIDIA_RUNTIME
from gpuhook.node_facts import kubelet_facts
from gpuhook.node_facts.check import WARNING, Finding, absent, check, for_each, ok, unless
from gpuhook.node_facts.engine_facts import containerds, crios, kubelet
from gpuhook.node_facts.program_facts import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.facts.toolkit_settings import ToolkitSettings
    from gpuhook.engines.read.engine_config import EngineConfiguration
    from gpuhook.node_facts.check import ExaminedNode, Findings

_BY_ENV = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_BY_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


@check(
    "nvidia-toolkit.two-stacks",
    "NVIDIA's runtime does not start another GPU runtime",
    needs=("nvidia-toolkit.config", "nvidia-toolkit.values", "nvidia-toolkit.low-level"),
)
@for_each(files, absent("NVIDIA's toolkit has no settings file here", *PATHS))
def _in_a_row(node: ExaminedNode, one: ToolkitSettings) -> Finding:
    path = next((path for name in one.runtimes if (path := program(node.tree, name))), "")
    if posixpath.basename(path) != GPUHOOK_RUNTIME:
        return ok("NVIDIA's runtime does not start another GPU runtime", one.path)
    return Finding(
        WARNING,
        f"{one.place('nvidia-container-runtime.runtimes')} makes NVIDIA's runtime start"
        f" {path}, and both add GPUs to containers",
        subject=one.path,
        meaning="two runtimes modify a container that requests GPUs: the"
        " second one finds NVIDIA_VISIBLE_DEVICES=void in its environment",
        command=f"nvidia-ctk config --config-file {one.path} --in-place --set"
        " nvidia-container-runtime.runtimes=runc:crun",
        looked_at=(one.path,),
    )


def _without_kubelet(node: ExaminedNode) -> Finding | None:
    message = "the node has no kubelet: the user who starts a container selects its GPUs"
    return None if kubelet(node) else absent(message)


@check(
    "nvidia-toolkit.images",
    "Pods without an assigned GPU see none",
    needs=("nvidia-toolkit.config", "containerd.config", "containerd.default", "crio.config"),
)
@unless(_without_kubelet)
def _by_image(node: ExaminedNode) -> Findings:
    found = [
        _open_to_all(node, configuration, has_cdi, settings)
        for configuration, has_cdi in _with_default(node)
        for settings in [_settings_of(node, configuration)]
        if settings is None or settings.of(_BY_ENV) is not False
    ]
    return found or ok("an image cannot get GPUs for a pod that requests none")


def _open_to_all(
    node: ExaminedNode,
    configuration: EngineConfiguration,
    has_cdi: bool,
    settings: ToolkitSettings | None,
) -> Finding:
    path = settings.path if settings else PATHS[0]
    message = "lets" if settings else "does not exist, so the default lets"
    return Finding(
        WARNING,
        f'"{configuration.default}" is the default runtime of {configuration.engine}, and {path}'
        f" {message} unprivileged containers select GPUs with their environment",
        subject=configuration.engine,
        meaning="every pod whose image sets NVIDIA_VISIBLE_DEVICES=all, as nvidia/cuda does, sees"
        " all GPUs of the node, even if none is assigned to it",
        command=_closing(node, path, has_cdi=has_cdi),
        looked_at=(path, *configuration.files),
    )


def _closing(node: ExaminedNode, path: str, *, has_cdi: bool) -> str:
    """Return the command that makes the runtime ignore the environment of containers.

    By default, NVIDIA's device plugin assigns GPUs through the environment. It needs another
    strategy first, or no pod gets a GPU.
    """
    used = {
        strategy
        for _, configuration in plugin_files.in_use(node)
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
    pods = [pod for pod in kubelet_facts.pods(node) if pod.daemon_set]
    if not pods:
        return (
            f"{closed} # but first set DEVICE_LIST_STRATEGY={strategy} for the device plugin:"
            " with envvar, its default, no pod would get a GPU"
        )
    set_env = f"kubectl -n {pods[0].namespace} set env daemonset/{pods[0].daemon_set}"
    return f"{set_env} DEVICE_LIST_STRATEGY={strategy} && {closed}"


def _operators(strategy: str, *, is_ready: bool) -> str:
    """Return the command for the GPU operator, which rewrites the file at every start."""
    env = [("ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "false")]
    if strategy == "volume-mounts" and not is_ready:
        env.append(("ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "true"))
    patch: dict[str, object] = {"toolkit": _env(env)}
    if not is_ready:
        patch["devicePlugin"] = _env([("DEVICE_LIST_STRATEGY", strategy)])
    document = json.dumps({"spec": patch})
    return f"kubectl patch clusterpolicy cluster-policy --type merge -p '{document}'"


def _env(pairs: list[tuple[str, str]]) -> dict[str, object]:
    return {"env": [{"name": name, "value": value} for name, value in pairs]}


def _settings_of(node: ExaminedNode, configuration: EngineConfiguration) -> ToolkitSettings | None:
    """Return the settings of the default runtime; the operator's toolkit has its own file."""
    path = configuration.runtimes[configuration.default].path
    settings_path = PATHS[1] if path.startswith(OPERATOR_TOOLKIT) else PATHS[0]
    return next((one for one in files(node) if one.path == settings_path), None)


def _with_default(node: ExaminedNode) -> list[tuple[EngineConfiguration, bool]]:
    """Return the engines whose default runtime is NVIDIA's, and whether each supports CDI."""
    found = [(one.configuration, one.read.has_cdi) for one in containerds(node) if one.read.has_cri]
    found += [(one.configuration, True) for one in crios(node)]
    return [
        (configuration, has_cdi)
        for configuration, has_cdi in found
        if (chosen := configuration.runtimes.get(configuration.default))
        and NVIDIA_RUNTIME in posixpath.basename(chosen.path)
        and not engine_config.is_front(node.tree, chosen.path)
    ]


CHECKS = (_in_a_row, _by_image)
