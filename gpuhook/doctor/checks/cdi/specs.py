# SPDX-License-Identifier: Apache-2.0
"""CDI specs against the node: what they give a container is there, and is of today's driver."""

from __future__ import annotations

from gpuhook.doctor import spec_regeneration
from gpuhook.doctor.check import FAILED, SPECS, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.cdi.spec_files import NONE
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space, engine_facts
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.vendors.nvidia.driver.driver_locations import OPERATOR_TOOLKIT
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.spec_facts import SpecFile

_SHOWN = 3
_MASKING = (1, 18)  # the first nvidia-ctk with the hook disable-device-node-modification
_STALE = (
    "containers get what was right before: files of the old driver, missing ones or none; with "
    '"Driver/library version mismatch", or "failed to fulfil mount request: ... no such file or '
    'directory"'
)


def each(
    look: Callable[[ExaminedNode, SpecFile], Iterable[Finding]],
) -> Callable[[ExaminedNode], Iterable[Finding]]:
    """Return the check of every spec that counts; what is found of a hidden one only warns."""

    def of_all(node: ExaminedNode) -> Iterable[Finding]:
        files = specs.valid(node)
        if not files:
            return [absent(NONE)]
        return [
            softened(finding, one.path) if specs.hidden(node, one) else finding
            for one in files
            for finding in look(node, one)
        ]

    return of_all


def softened(finding: Finding, path: str) -> Finding:
    """Return a finding about the spec `path`, whose devices another of higher priority has."""
    if finding.status != FAILED:
        return finding
    return Finding(
        WARNING,
        f"{finding.said}; a spec in a later directory counts instead of it",
        finding.subject,
        f"as soon as that one is gone: {finding.meaning}",
        f"rm {path}",
        finding.looked_at,
    )


def stale(node: ExaminedNode, one: SpecFile, said: str, meaning: str, *looked_at: str) -> Finding:
    """Return that a spec is wrong, and that it is to be written again."""
    looked, command = (one.path, *looked_at), specs.rewrite(node, one)
    again = spec_regeneration.mend(node, one)
    return Finding(FAILED, said, one.path, meaning, command, looked, again)


def listed(items: list[str]) -> str:
    """Return the first items, and how many more there are."""
    rest = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _driver(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    version = one.driver_version()
    module = facts.module_version(node) or driver_user_space.driver_user_space(node).version
    if not version:
        return [absent(f"{one.path} does not name its driver version", one.path)]
    if not module:
        said = f"{one.path} names the driver version {version}, and this node has no driver"
        return [absent(said, one.path)]
    if version == module:
        return [ok(f"{one.path} is of the driver {version}", one.path, subject=one.path)]
    said = f"{one.path} was made for the driver {version}, and the node has {module}"
    return [stale(node, one, said, _STALE, facts.VERSION)]


def _mounts(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    paths = list(dict.fromkeys(mount["hostPath"] for mount in one.items("mounts")))
    lacking = [path for path in paths if node.tree.status(path) is None]
    if not lacking:
        return [ok(f"all {len(paths)} files that {one.path} mounts are there", one.path)]
    are = "is" if len(lacking) == 1 else "are"
    said = f"{one.path} mounts {listed(lacking)}, which {are} not there"
    meaning = (
        'no container with a GPU starts: "error mounting ... to rootfs: ... no such file or '
        'directory"'
    )
    sockets = [path for path in lacking if path.endswith("/socket")]
    if sockets == lacking:
        unit = "nvidia-" + ("fabricmanager" if "fabricmanager" in lacking[0] else "persistenced")
        command = f"systemctl start {unit}.service || {specs.rewrite(node, one)}"
        return [Finding(FAILED, said, one.path, meaning, command, (one.path, *lacking))]
    return [stale(node, one, said, meaning, *lacking)]


def _hooks(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    paths = list(dict.fromkeys(hook["path"] for hook in one.items("hooks")))
    found = [finding for path in paths for finding in _hook(node, one, path)]
    if found or not paths:
        return found or [absent(f"{one.path} runs no hooks", one.path)]
    return [ok(f"the hooks of {one.path} are there: {', '.join(paths)}", one.path, *paths)]


def _hook(node: ExaminedNode, one: SpecFile, path: str) -> Iterable[Finding]:
    status = node.tree.status(path) if path.startswith("/") else None
    if status is not None and status.is_executable:
        return
    name = path.rpartition("/")[2]
    if status is None:
        said = f"{one.path} runs the hook {path}, which is not there"
        reason = "no such file or directory"
        command = specs.rewrite(node, one)
        if path.startswith(OPERATOR_TOOLKIT):
            command = specs.OPERATORS_TOOLKIT
        elif name != hook_args.HOOK_NAME:
            package = "nvidia-container-toolkit-base"
            command = f"{facts.install(node, package, package)} && {command}"
    else:
        said = f"{one.path} runs the hook {path}, which is not executable"
        reason = "permission denied"
        command = f"chmod 0755 {path}"
    yield Finding(
        FAILED,
        said,
        subject=path,
        meaning='no container with a GPU starts: "error running createContainer hook: fork/exec '
        f'{path}: {reason}"',
        command=command,
        looked_at=(one.path, path),
    )


def _nodes(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    paths = one.nodes()
    lacking = [path for path in paths if node.tree.status(path) is None]
    if not lacking:
        return [ok(f"all {len(paths)} device nodes of {one.path} are there", one.path)]
    are = "is" if len(lacking) == 1 else "are"
    said = f"{one.path} gives {listed(lacking)}, which {are} not there"
    meaning = 'containers with these devices do not start: "no such file or directory"'
    return [stale(node, one, said, meaning, *lacking)]


def _majors(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    wrong = []
    for path, edit in one.nodes().items():
        status = node.tree.status(path)
        if "major" not in edit or status is None or not status.is_character_device:
            continue
        told = (edit["major"], edit.get("minor") or 0)
        if told != (status.major, status.minor):
            is_now = f"{status.major}:{status.minor}"
            wrong.append(f"{path} is {told[0]}:{told[1]} in it, and {is_now} now")
    if not wrong:
        return [ok(f"no device number in {one.path} is stale", one.path)]
    meaning = (
        "containers get a node of another driver, and no access to the right one: CUDA fails with "
        'CUDA_ERROR_UNKNOWN (999), nvidia-smi with "Failed to initialize NVML: Unknown Error"'
    )
    return [stale(node, one, f"{one.path}: {listed(wrong)}", meaning, facts.DEVICES)]


def _params(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    if facts.params(node).get("ModifyDeviceFiles") != "1":
        return [absent("the driver makes no device nodes by itself", facts.PARAMS)]
    hooks = one.items("hooks")
    masks = any(job.driver_params for job in one.jobs()) or any(
        "disable-device-node-modification" in (hook.get("args") or ()) for hook in hooks
    )
    if masks:
        return [ok(f"{one.path} hides ModifyDeviceFiles: 1 from containers", one.path)]
    number = engine_facts.version(node, "nvidia-ctk")
    if one.author == specs.TOOLKIT and (number is None or number < _MASKING):
        said = "nvidia-container-toolkit hides it since 1.18 alone"
        return [absent(f"{one.path} does not hide ModifyDeviceFiles: {said}", one.path)]
    return [
        Finding(
            WARNING,
            f"{facts.PARAMS} says ModifyDeviceFiles: 1, and {one.path} does not hide that",
            subject=one.path,
            meaning="in a container that may make device nodes, the driver's libraries make those "
            "of GPUs that it was not given, and change the modes of others",
            command=specs.rewrite(node, one),
            looked_at=(one.path, facts.PARAMS),
        )
    ]


# Without what these make sure of, no spec can be right.
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

CHECKS: tuple[Check, ...] = (
    Check(
        DRIVER,
        SPECS,
        "The specs are of the driver that is loaded",
        each(_driver),
        needs=_CAUSES[:3],
    ),
    Check(
        "specs.hooks",
        SPECS,
        "The programs that the specs run as hooks are there",
        each(_hooks),
    ),
    Check(
        "specs.nodes",
        SPECS,
        "The device nodes that the specs give are there",
        each(_nodes),
        needs=("driver.bus", *_CAUSES, DRIVER, "specs.instances"),
    ),
    Check(
        "specs.majors",
        SPECS,
        "The specs have no device numbers of an earlier boot",
        each(_majors),
        needs=(*_CAUSES, DRIVER),
    ),
    Check(
        "specs.mounts",
        SPECS,
        "The files that the specs mount are there",
        each(_mounts),
        needs=(*_CAUSES, DRIVER),
    ),
    Check(
        "specs.params",
        SPECS,
        "Containers cannot have the driver make device nodes",
        each(_params),
        needs=("driver.module",),
    ),
)
