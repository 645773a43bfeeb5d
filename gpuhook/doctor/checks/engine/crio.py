# SPDX-License-Identifier: Apache-2.0
"""CRI-O: its default runtime, its GPU runtime, and the CDI specs that it reads."""

from __future__ import annotations

from gpuhook.doctor.checks.engine.engine_checks import (
    binary_check,
    config_check,
    default_check,
    not_installed,
    restart_check,
)
from gpuhook.doctor.checks.engine.engine_findings import cdi_findings
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.gpu_engine import why_no_gpus
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes, runtime_names, spec_dirs
from gpuhook.engines.read import crio_config as reader
from gpuhook.engines.read import oci_hooks
from gpuhook.node_facts.check import FAILED, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import crios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import CrioHere

_READ = ("crio.config",)


@check("crio.runtime", "CRI-O can give containers GPUs", needs=_READ)
@for_each(crios, not_installed("crio"))
def _runtime(node: ExaminedNode, one: CrioHere) -> Finding:
    found = gpu_runtimes(node.tree, one.configuration)
    hooks = [hook for hook in oci_hooks.read(node.tree, one.read.hook_dirs) if hook.gives_gpus]
    files = one.configuration.files
    if found:
        return ok(f"runtime {runtime_names(found)} gives GPUs", *files)
    if hooks:
        return ok(f"the OCI hook of {hooks[0].file} gives GPUs", hooks[0].file)
    if spec_dirs(node):
        return ok("no GPU runtime is registered: containers get GPUs only as CDI devices", *files)
    if why := why_no_gpus(node, "crio"):
        return absent(f"CRI-O registers no GPU runtime: {why}")
    return Finding(
        FAILED,
        f"CRI-O registers no GPU runtime (only {', '.join(one.configuration.runtimes)})",
        meaning="pods with runtimeClassName: nvidia do not start: failed to find runtime"
        " handler nvidia from runtime list",
        command=register_commands.register(node, one),
        looked_at=files or (reader.PATH, reader.DROP_INS),
    )


@check("crio.cdi-dirs", "CRI-O finds the CDI specs of GPUs", needs=_READ)
@for_each(crios, not_installed("crio"))
def _cdi_dirs(node: ExaminedNode, one: CrioHere) -> Findings:
    return cdi_findings(node, "CRI-O", one)


CHECKS = (
    config_check("crio"),
    default_check("crio"),
    _runtime,
    binary_check("crio"),
    _cdi_dirs,
    restart_check("crio", "crio.config", "crio.runtime"),
)
