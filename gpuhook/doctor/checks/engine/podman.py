# SPDX-License-Identifier: Apache-2.0
"""podman: its runtime, the CDI specs that it reads, and the OCI hooks that it runs."""

from __future__ import annotations

from gpuhook.doctor.checks.engine.engine_checks import config_check, not_installed
from gpuhook.doctor.checks.engine.engine_findings import cdi_findings, without_program
from gpuhook.engines.read import oci_hooks
from gpuhook.engines.read import podman_config as reader
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import crios, podmans
from gpuhook.node_facts.program_facts import program, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.read.oci_hooks import OciHook
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import PodmanHere

_READ = ("podman.config",)


@check("podman.cdi", "podman finds the CDI specs of GPUs", needs=_READ)
@for_each(podmans, not_installed("podman"))
def _cdi(node: ExaminedNode, one: PodmanHere) -> Findings:
    number = version(node, "podman")
    if reader.has_cdi(number):
        return cdi_findings(node, "podman", one)
    message = (
        f"podman {'.'.join(map(str, number or ()))} does not support CDI, which was added in 4.1"
    )
    meaning = (
        "podman run --device nvidia.com/gpu=all fails: stat nvidia.com/gpu=all: no such file"
        " or directory"
    )
    command = package_commands.install(node.tree, "podman")
    return Finding(WARNING, message, meaning=meaning, command=command)


@check("podman.binary", "podman's runtime is executable", needs=_READ)
@for_each(podmans, not_installed("podman"))
def _binary(node: ExaminedNode, one: PodmanHere) -> Findings:
    default = one.configuration.default
    chosen = one.configuration.runtimes.get(default)
    others = chosen.options.get("paths", ()) if chosen else ()
    found: list[Finding] = []
    if chosen and not any(program(node.tree, path) for path in others):
        found = without_program(
            node.tree,
            [chosen],
            'no podman container starts: default OCI runtime "{name}" not found: invalid argument',
            f"sed -i 's/^ *runtime *=.*/runtime = \"crun\"/' {' '.join(one.configuration.files)}",
            "podman",
        )
    return found or ok(f'the default runtime is "{default}"')


def _hook_files(node: ExaminedNode) -> tuple[OciHook, ...]:
    directories = [path for podman in podmans(node) for path in podman.read.hook_dirs]
    directories += [path for crio in crios(node) for path in crio.read.hook_dirs]
    return oci_hooks.read(node.tree, dict.fromkeys(directories))


@check("oci-hooks.program", "OCI hooks can be run", needs=_READ)
def _hooks(node: ExaminedNode) -> Findings:
    if not podmans(node) and not crios(node):
        return absent("no engine that runs OCI hooks is installed")
    hooks = _hook_files(node)
    found = [
        Finding(
            FAILED,
            f"{one.file} "
            + (one.reason or f"runs {one.path}, which does not exist or is not executable"),
            subject=one.file,
            meaning="containers that the hook applies to do not start: error executing hook",
            command=f"rm {one.file} # use CDI for GPUs: podman run --device nvidia.com/gpu=all",
            looked_at=(one.file, one.path),
        )
        for one in hooks
        if one.reason or not program(node.tree, one.path)
    ]
    return found or ok(f"{len(hooks)} OCI hooks are installed", *(one.file for one in hooks))


@check(
    "oci-hooks.two-stacks",
    "At most one OCI hook adds GPUs to containers",
    needs=("oci-hooks.program",),
)
def _two_stacks(node: ExaminedNode) -> Finding:
    found = [one for one in _hook_files(node) if one.gives_gpus]
    files = tuple(one.file for one in found)
    if not found:
        return absent("no OCI hook gives GPUs", *reader.HOOK_DIRS)
    if len({one.path for one in found}) == 1:
        return ok(f"{files[0]} is the only OCI hook that adds GPUs", *files)
    return Finding(
        FAILED,
        f"{' and '.join(files)} both give containers GPUs",
        subject=files[0],
        meaning="a container that requests GPUs gets them twice; the second hook fails or"
        " undoes the changes of the first: error running prestart hook: file exists",
        command=f"rm {files[-1]} # or the other one",
        looked_at=files,
    )


CHECKS = (config_check("podman"), _cdi, _binary, _hooks, _two_stacks)
