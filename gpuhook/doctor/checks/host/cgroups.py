# SPDX-License-Identifier: Apache-2.0
"""Control groups: their version, and whether containers keep their GPUs."""

from __future__ import annotations

from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes
from gpuhook.doctor.facts.toolkit_settings import files, is_legacy
from gpuhook.engines.read.engine_config import NVIDIA_RUNTIME
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import WARNING, Finding, absent, check, ok
from gpuhook.node_facts.engine_facts import containerds, crios, dockers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.facts.toolkit_settings import ToolkitSettings
    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import EngineHere

ROOT = "/sys/fs/cgroup"


def _is_v2(node: ExaminedNode) -> bool | None:
    """Return whether only cgroup v2 is mounted, None if no cgroups are mounted."""
    if node.tree.status(f"{ROOT}/cgroup.controllers"):
        return True
    return False if node.tree.status(f"{ROOT}/devices") else None


@check("host.cgroups", "Control groups are mounted")
def _cgroup_version(node: ExaminedNode) -> Finding:
    found = _is_v2(node)
    if found is None:
        return absent("no cgroups are mounted in this tree", ROOT)
    if found:
        return ok("cgroup v2 is mounted", f"{ROOT}/cgroup.controllers")
    return ok("cgroup v1 is mounted, which systemd 258 no longer supports", ROOT)


@check(
    "host.daemon-reload",
    "Containers keep their GPUs at `systemctl daemon-reload`",
    needs=("nvidia-toolkit.config", "nvidia-toolkit.values"),
)
def _kept_gpus(node: ExaminedNode) -> Findings:
    """NVIDIA's hook writes device rules into the cgroup of the running container.

    systemd does not know these rules and writes its own ones again at every daemon-reload.
    """
    found = [
        Finding(
            WARNING,
            f"{one.path} has mode {one.mode}, in which NVIDIA's hook sets device rules, and"
            f' systemd manages the cgroups of runtime "{run.name}" of {engine}',
            subject=engine,
            meaning="running containers lose their GPUs at `systemctl daemon-reload`, for"
            " example during updates: Failed to initialize NVML: Unknown Error",
            command=_by_specs(node, engine, one),
            looked_at=(one.path, str(run.where)),
        )
        for one in files(node)
        if is_legacy(node, one)
        for engine, run in _through_nvidia(node)
    ]
    if not files(node):
        return absent("NVIDIA's toolkit has no settings file here")
    message = "the config.json of containers with GPUs has their device rules"
    return found or ok(message, files(node)[0].path)


def _by_specs(node: ExaminedNode, engine: str, one: ToolkitSettings) -> str:
    """Return the command after which config.json has the device rules of containers.

    In mode cdi, `docker run --gpus`, which calls the hook directly, no longer works.
    """
    if engine in ("docker", "snap", "rootless"):
        return (
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            " # then: docker run --device nvidia.com/gpu=all instead of --gpus"
        )
    if one.mode == "auto":
        package = package_commands.install(node.tree, "nvidia-container-toolkit")
        return f"{package} # 1.18 or later; containers must be recreated"
    return (
        f"nvidia-ctk config --config-file {one.path} --in-place --set"
        " nvidia-container-runtime.mode=cdi && nvidia-ctk cdi generate"
        " --output=/etc/cdi/nvidia.yaml # containers must be recreated"
    )


def _through_nvidia(node: ExaminedNode) -> list[tuple[str, Runtime]]:
    """Return (engine, runtime) of NVIDIA's runtimes whose cgroups systemd manages."""
    return [
        (one.name or one.engine, run)
        for one in (*containerds(node), *dockers(node), *crios(node))
        for run in gpu_runtimes(node.tree, one.configuration)
        if NVIDIA_RUNTIME in run.path and _has_systemd(one, run, _is_v2(node))
    ]


def _has_systemd(one: EngineHere, run: Runtime, is_v2: bool | None) -> bool:
    """Return whether systemd manages a runtime's cgroups: for CRI-O, and for Docker with v2."""
    options = run.options.get("options")
    if one.engine == "docker":
        return is_v2 is True
    return one.engine == "crio" or (
        isinstance(options, dict) and options.get("systemdcgroup") is True
    )


CHECKS = (_cgroup_version, _kept_gpus)
