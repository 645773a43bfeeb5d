# SPDX-License-Identifier: Apache-2.0
"""Control groups: which there are, and whether containers keep their GPUs in them."""

from __future__ import annotations

from gpuhook.doctor.check import HOST, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import gpu_runtimes, installing
from gpuhook.doctor.facts.engine_facts import containerds, crio_here, dockers
from gpuhook.doctor.facts.toolkit_settings import files, is_legacy
from gpuhook.engines.read.engine_config import NVIDIA_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.toolkit_settings import ToolkitSettings
    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime

ROOT = "/sys/fs/cgroup"


def _is_v2(node: ExaminedNode) -> bool | None:
    """Return whether cgroups are of version 2 alone, None where none are mounted."""
    if node.tree.status(f"{ROOT}/cgroup.controllers"):
        return True
    return False if node.tree.status(f"{ROOT}/devices") else None


def cgroup_version(node: ExaminedNode) -> Iterable[Finding]:
    """Say which control groups there are."""
    found = _is_v2(node)
    if found is None:
        yield absent("no control groups are mounted in this tree", ROOT)
    elif found:
        yield ok("control groups are of version 2", f"{ROOT}/cgroup.controllers")
    else:
        yield ok("control groups are of version 1, which systemd 258 no longer has", ROOT)


def kept_gpus(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether systemd knows the device rules of containers that have GPUs.

    NVIDIA's hook writes the rules into the running container's cgroup, behind the back of systemd,
    which writes its own anew at every daemon-reload.
    """
    found = []
    for one in files(node):
        if not is_legacy(node, one):
            continue
        for engine, run in _through_nvidia(node):
            found.append(
                Finding(
                    WARNING,
                    f"{one.path} has mode {one.mode}, by which NVIDIA's hook sets device rules, and"
                    f' systemd keeps the cgroups of runtime "{run.name}" of {engine}',
                    subject=engine,
                    meaning="running containers lose their GPUs at `systemctl daemon-reload`, as"
                    " updates do it: Failed to initialize NVML: Unknown Error",
                    command=_by_specs(node, engine, one),
                    looked_at=(one.path, str(run.where)),
                )
            )
    if found:
        yield from found
    elif files(node):
        yield ok("device rules of containers with GPUs are in their specs", files(node)[0].path)
    else:
        yield absent("NVIDIA's toolkit has no settings file here")


def _by_specs(node: ExaminedNode, engine: str, one: ToolkitSettings) -> str:
    """Return the command that has device rules be in the specs of containers.

    In mode cdi `docker run --gpus`, which calls the hook itself, no longer works.
    """
    if engine in ("docker", "snap", "rootless"):
        return (
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            " # then: docker run --device nvidia.com/gpu=all, in place of --gpus"
        )
    if one.mode == "auto":
        package = installing(node.tree, "nvidia-container-toolkit")
        return f"{package} # 1.18 or later; containers have to be made anew"
    return (
        f"nvidia-ctk config --config-file {one.path} --in-place --set"
        " nvidia-container-runtime.mode=cdi && nvidia-ctk cdi generate"
        " --output=/etc/cdi/nvidia.yaml # containers have to be made anew"
    )


def _through_nvidia(node: ExaminedNode) -> list[tuple[str, Runtime]]:
    """Return NVIDIA's runtimes whose containers have cgroups that systemd keeps."""
    crio = crio_here(node)
    named: list[tuple[str, EngineConfiguration]] = [
        *((one.distribution.name, one.read.configuration) for one in containerds(node)),
        *((one.kind, one.read.configuration) for one in dockers(node)),
        *([("crio", crio.configuration)] if crio else []),
    ]
    return [
        (engine, run)
        for engine, configuration in named
        for run in gpu_runtimes(node.tree, configuration)
        if NVIDIA_RUNTIME in run.path and _has_systemd(engine, run, _is_v2(node))
    ]


def _has_systemd(engine: str, run: Runtime, is_v2: bool | None) -> bool:
    """Return whether a runtime's cgroups are systemd's: CRI-O's are, Docker's with version 2."""
    options = run.options.get("options")
    if engine in ("docker", "snap", "rootless"):
        return is_v2 is True
    return engine == "crio" or (isinstance(options, dict) and options.get("systemdcgroup") is True)


CHECKS = (
    Check("host.cgroups", HOST, "Control groups are there", cgroup_version),
    Check(
        "host.daemon-reload",
        HOST,
        "Containers keep their GPUs when systemd is reloaded",
        kept_gpus,
        ("nvidia-toolkit.config", "nvidia-toolkit.values"),
    ),
)
