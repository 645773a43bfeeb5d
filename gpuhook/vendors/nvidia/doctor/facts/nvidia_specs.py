# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of NVIDIA GPUs: their author, and the driver that they are made for."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from gpuhook.apply.rootfs import hook_args
from gpuhook.node_facts import cdi_specs, engine_facts, program_facts
from gpuhook.node_facts.check import fact
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode

GPUHOOK, TOOLKIT, PLUGIN = "gpuhook", "nvidia-ctk", "device plugin"
TOOLKIT_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")
REFRESH_UNIT = "nvidia-cdi-refresh.service"
# The pods of the GPU operator write their files again when they start.
OPERATORS_TOOLKIT = (
    "kubectl -n gpu-operator rollout restart daemonset/nvidia-container-toolkit-daemonset"
)
_HOST_VERSION = "--host-driver-version="


def driver_version(one: SpecFile) -> str:
    """Return the version of the driver that a spec was made for, "" if unknown."""
    for job in one.jobs():
        if job.driver_version:
            return job.driver_version
    for hook in one.items("hooks"):
        for argument in hook.get("args") or ():
            if argument.startswith(_HOST_VERSION):
                return str(argument[len(_HOST_VERSION) :])
    for mount in one.items("mounts"):
        name = posixpath.basename(mount["hostPath"])
        version = injection_traces.driver_version(mount["hostPath"])
        if version and name.startswith(("libcuda.so.", "libnvidia-ml.so.")):
            return version
    return ""


def valid_specs(node: ExaminedNode) -> list[SpecFile]:
    """Return the valid specs of NVIDIA GPUs, lowest priority first."""
    return [one for one in spec_files(node) if one.document is not None]


@fact
def spec_files(node: ExaminedNode) -> tuple[SpecFile, ...]:
    """Return the specs of NVIDIA GPUs, lowest priority first."""
    return tuple(spec for path in cdi_specs.paths(node) for spec in _spec(node, path))


def _spec(node: ExaminedNode, path: str) -> Iterator[SpecFile]:
    found = cdi_specs.read_spec(node, path)
    if found is None:
        return
    one, content = found
    vendor = one.kind.partition("/")[0]
    if one.document is None:
        if b"nvidia" in content.lower() or "nvidia" in path:
            yield replace(one, author=_author_of_text(content))
    elif vendor == vocabulary.VENDOR or vendor.endswith("." + vocabulary.VENDOR):
        yield replace(one, author=_author(vendor, content))


def _author(vendor: str, content: bytes) -> str:
    if vendor == vocabulary.PLUGIN_VENDOR:
        return PLUGIN
    return _author_of_text(content) if vendor == vocabulary.VENDOR else cdi_specs.OTHER


def _author_of_text(content: bytes) -> str:
    if hook_args.HOOK_NAME.encode() in content:
        return GPUHOOK
    return TOOLKIT if any(name.encode() in content for name in TOOLKIT_HOOKS) else cdi_specs.OTHER


def is_hidden(node: ExaminedNode, one: SpecFile) -> bool:
    """Return whether a spec of higher priority has all devices of this one."""
    return cdi_specs.is_hidden_by(node, one, valid_specs(node))


def specs_with_node(node: ExaminedNode, path: str) -> list[str]:
    """Return the paths of the specs that have the device node `path`."""
    return [
        one.path for one in valid_specs(node) if path in one.nodes() and not is_hidden(node, one)
    ]


def rewrite_command(node: ExaminedNode, one: SpecFile) -> str:
    """Return the command that writes a spec again with the program that wrote it."""
    if one.author == PLUGIN:
        return "kubectl delete pod -A -l 'app.kubernetes.io/name=nvidia-device-plugin'"
    if one.kind.startswith("management."):
        return OPERATORS_TOOLKIT
    if (
        one.kind
        and one.author == cdi_specs.OTHER
        and one.kind.partition("/")[0] != vocabulary.VENDOR
    ):
        return (
            f"kubectl get pods -A -o wide | grep -i nvidia # delete the pod that wrote {one.path}"
        )
    if one.author == GPUHOOK or (
        one.author == cdi_specs.OTHER and not engine_facts.has_toolkit(node)
    ):
        made = f"gpuhook generate-cdi --output-file {one.path}"
        return "gpuhook refresh --force" if one.author == GPUHOOK else made
    if one.path.endswith("run/cdi/nvidia.yaml") and program_facts.has_unit(node, REFRESH_UNIT):
        return f"systemctl restart {REFRESH_UNIT}"
    return f"nvidia-ctk cdi generate --output={one.path}"
