# SPDX-License-Identifier: Apache-2.0
"""The contents of CDI specs: files, nodes and hooks exist and match the loaded driver."""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.doctor.checks.cdi.spec_files import NONE
from gpuhook.doctor.commands import spec_regeneration
from gpuhook.doctor.facts.toolkit_settings import OPERATOR_TOOLKIT
from gpuhook.node_facts import cdi_specs, package_commands, program_facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    as_findings,
    check,
    first_items,
    for_each,
    ok,
)
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_user_space
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Findings, Look

_MASKING = (1, 18)  # the first nvidia-ctk with the hook disable-device-node-modification
_STALE = (
    "containers get files of the old driver, or none; they fail with "
    '"Driver/library version mismatch", or "failed to fulfil mount request: ... no such file or '
    'directory"'
)


# No spec can be correct if one of these has failed.
_CAUSES = (
    "driver.module",
    "driver.libraries",
    "driver.version",
    "driver.firmware",
    "devices.control",
    "devices.gpus",
    "devices.uvm",
    "devices.uvm-tools",
    "devices.modeset",
    "devices.capabilities",
    "devices.numbers",
)
DRIVER = "specs.driver"


def each(
    look: Callable[[ExaminedNode, SpecFile], Findings],
) -> Look:
    """Return a look at every valid spec; a fault of a hidden spec is only a warning."""

    def look_at(node: ExaminedNode, one: SpecFile) -> Findings:
        findings = look(node, one)
        if not specs.is_hidden(node, one):
            return findings
        return [softened(finding, one.path) for finding in as_findings(findings)]

    return for_each(specs.valid_specs, absent(NONE))(look_at)


def softened(finding: Finding, path: str) -> Finding:
    """Return a finding on the spec `path`, whose devices a spec of higher priority has."""
    if finding.status != FAILED:
        return finding
    return Finding(
        WARNING,
        f"{finding.message}; a spec in a later directory overrides it",
        finding.subject,
        f"if that spec is removed: {finding.meaning}",
        f"rm {path}",
        finding.looked_at,
    )


def stale_spec(
    node: ExaminedNode, one: SpecFile, message: str, meaning: str, *looked_at: str
) -> Finding:
    """Return the finding that a spec is wrong and has to be written again."""
    looked, command = (one.path, *looked_at), specs.rewrite_command(node, one)
    again = spec_regeneration.spec_fix(node, one)
    return Finding(FAILED, message, one.path, meaning, command, looked, again)


def _lacks(paths: list[str]) -> str:
    return "does not exist" if len(paths) == 1 else "do not exist"


@check(DRIVER, "The specs match the loaded driver", needs=_CAUSES[:3])
@each
def _driver(node: ExaminedNode, one: SpecFile) -> Findings:
    version = specs.driver_version(one)
    module = facts.module_version(node) or driver_user_space.driver_user_space(node).version
    if not version:
        return absent(f"{one.path} does not specify its driver version", one.path)
    if not module:
        message = f"{one.path} specifies driver version {version}, but this node has no driver"
        return absent(message, one.path)
    if version == module:
        return ok(f"{one.path} matches the driver {version}", one.path, subject=one.path)
    message = f"{one.path} was generated for driver {version}, but the node has {module}"
    return stale_spec(node, one, message, _STALE, facts.VERSION)


@check("specs.mounts", "The files that the specs mount exist", needs=(*_CAUSES, DRIVER))
@each
def _mounts(node: ExaminedNode, one: SpecFile) -> Findings:
    paths = list(dict.fromkeys(mount["hostPath"] for mount in one.items("mounts")))
    lacking = [path for path in paths if node.tree.status(path) is None]
    if not lacking:
        return ok(f"all {len(paths)} files that {one.path} mounts exist", one.path)
    message = f"{one.path} mounts {first_items(lacking)}, which {_lacks(lacking)}"
    meaning = (
        'no container with a GPU starts: "error mounting ... to rootfs: ... no such file or '
        'directory"'
    )
    sockets = [path for path in lacking if path.endswith("/socket")]
    if sockets == lacking:
        unit = "nvidia-" + ("fabricmanager" if "fabricmanager" in lacking[0] else "persistenced")
        command = f"systemctl start {unit}.service || {specs.rewrite_command(node, one)}"
        return Finding(FAILED, message, one.path, meaning, command, (one.path, *lacking))
    return stale_spec(node, one, message, meaning, *lacking)


@check("specs.hooks", "The programs that the specs run as hooks exist")
@each
def _hooks(node: ExaminedNode, one: SpecFile) -> Findings:
    paths = list(dict.fromkeys(hook["path"] for hook in one.items("hooks")))
    found = [finding for path in paths for finding in _hook(node, one, path)]
    if found or not paths:
        return found or [absent(f"{one.path} runs no hooks", one.path)]
    return ok(f"the hooks of {one.path} exist: {', '.join(paths)}", one.path, *paths)


def _hook(node: ExaminedNode, one: SpecFile, path: str) -> Iterable[Finding]:
    status = node.tree.status(path) if path.startswith("/") else None
    if status is not None and status.is_executable:
        return
    name = path.rpartition("/")[2]
    if status is None:
        message = f"{one.path} runs the hook {path}, which does not exist"
        reason = "no such file or directory"
        command = spec_regeneration.command_with_installed_hook(node, one, path)
        command = command or specs.rewrite_command(node, one)
        if path.startswith(OPERATOR_TOOLKIT):
            command = specs.OPERATORS_TOOLKIT
        elif name != hook_args.HOOK_NAME:
            package = "nvidia-container-toolkit-base"
            command = f"{package_commands.install(node.tree, package, package)} && {command}"
    else:
        message = f"{one.path} runs the hook {path}, which is not executable"
        reason = "permission denied"
        command = f"chmod 0755 {path}"
    yield Finding(
        FAILED,
        message,
        subject=path,
        meaning='no container with a GPU starts: "error running createContainer hook: fork/exec '
        f'{path}: {reason}"',
        command=command,
        looked_at=(one.path, path),
    )


@check(
    "specs.nodes",
    "The device nodes of the specs exist",
    needs=("driver.bus", *_CAUSES, DRIVER, "specs.instances"),
)
@each
def _nodes(node: ExaminedNode, one: SpecFile) -> Findings:
    paths = one.nodes()
    lacking = [path for path in paths if node.tree.status(path) is None]
    if not lacking:
        return ok(f"all {len(paths)} device nodes of {one.path} exist", one.path)
    message = f"{one.path} gives {first_items(lacking)}, which {_lacks(lacking)}"
    meaning = 'containers with these devices do not start: "no such file or directory"'
    return stale_spec(node, one, message, meaning, *lacking)


@check("specs.majors", "The device numbers in the specs are current", needs=(*_CAUSES, DRIVER))
@each
def _majors(node: ExaminedNode, one: SpecFile) -> Findings:
    wrong = cdi_specs.wrong_numbers(node, one)
    if not wrong:
        return ok(f"the device numbers in {one.path} are current", one.path)
    meaning = (
        "containers get a node that belongs to another driver, and no access to the correct one: "
        "CUDA fails with "
        'CUDA_ERROR_UNKNOWN (999), nvidia-smi with "Failed to initialize NVML: Unknown Error"'
    )
    return stale_spec(node, one, f"{one.path}: {first_items(wrong)}", meaning, facts.DEVICES)


@check(
    "specs.params",
    "Specs prevent the driver's libraries from creating device nodes in containers",
    needs=("driver.module",),
)
@each
def _params(node: ExaminedNode, one: SpecFile) -> Findings:
    if facts.params(node).get("ModifyDeviceFiles") != "1":
        return absent("the driver does not create device nodes", facts.PARAMS)
    hooks = one.items("hooks")
    masks = any(job.driver_params for job in one.jobs()) or any(
        "disable-device-node-modification" in (hook.get("args") or ()) for hook in hooks
    )
    if masks:
        return ok(f"{one.path} hides ModifyDeviceFiles: 1 from containers", one.path)
    number = program_facts.version(node, "nvidia-ctk")
    if one.author == specs.TOOLKIT and (number is None or number < _MASKING):
        message = "nvidia-container-toolkit hides it only since 1.18"
        return absent(f"{one.path} does not hide ModifyDeviceFiles: {message}", one.path)
    return Finding(
        WARNING,
        f"{facts.PARAMS} has ModifyDeviceFiles: 1, but {one.path} does not hide it",
        subject=one.path,
        meaning="in a container that can create device nodes, the driver's libraries create "
        "nodes for GPUs that are not assigned to it, and change the modes of others",
        command=specs.rewrite_command(node, one),
        looked_at=(one.path, facts.PARAMS),
    )


CHECKS = (_driver, _hooks, _nodes, _majors, _mounts, _params)
