# SPDX-License-Identifier: Apache-2.0
"""The jobs of our CDI hook, done by the wrapper before the runtime starts, else by the hook.

An interpreter in a hook runs inside the container's own CPU limit, so the wrapper does the work
itself if the result is the same: no mount of config.json covers the files that it writes, and the
root file system exists and is not the host's.
"""

from __future__ import annotations

import errno
import os

from gpuhook.apply.rootfs.hook_args import Jobs, is_beside_toolkit
from gpuhook.apply.rootfs.root_directory import Identity, Root
from gpuhook.apply.rootfs.rootfs_files import provide, require_writable
from gpuhook.apply.rootfs.safe_walk import CrossingError
from gpuhook.apply.spec import oci_spec
from gpuhook.apply.spec.oci_spec import HOOK_MARK
from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.nvidia.hot.rootfs import driver_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Hook

    Covered = tuple[str, str]

_NO_IDENTITY = (errno.EOVERFLOW, errno.EACCES, errno.EPERM)


class RootfsWork:
    """Access to a root file system. A dry run has the same methods, and writes nothing.

    `is_by_hooks`: there is no root file system yet, and the hooks do everything. `is_recorded`: the
    loader's files are recorded on the node for other containers.
    """

    is_by_hooks = False
    is_recorded = True

    def opened(self, path: str) -> Root:
        """Return the root file system at the host path `path`; GH1304 if it is the host's own."""
        return Root(path)

    def masked_file(self, content: bytes) -> str:
        """Return the path of a file with the driver's masked parameters; raises OSError."""
        return driver_params.masked_file(content)


def do(
    bundle: str,
    spec: dict[str, Any],
    edits: ContainerEdits,
    todo: list[Jobs],
    *,
    engine: list[Jobs],
    work: RootfsWork,
) -> JobsOutcome:
    """Do `todo` in the root file system of the bundle, for a spec to which `edits` were applied.

    `engine` are the jobs of hooks that an engine put into the spec. A hook sees other hooks in
    config.json, but not the work of the wrapper, so the wrapper does all of `todo` or leaves all of
    it to the hooks.
    """
    outcome = JobsOutcome()
    if not todo:
        return outcome
    if work.is_by_hooks:
        outcome.hooks += map(_python_hook, todo)
        return outcome
    ours = {mount["containerPath"] for mount in edits.get("mounts") or ()}
    with work.opened(root_path(bundle, spec)) as root:
        require_writable(root)
        # A container's mounts, each with the place in the root file system that it covers.
        foreign = [(path, root.real(path)) for path in _destinations(spec) if path not in ours]
        if not _is_done(root, spec, foreign, todo, engine, outcome=outcome, work=work):
            outcome.hooks += [_python_hook(job) for job in todo]
            return outcome
        for job in todo:
            hooks = [*_params_hook(root.path, spec, foreign, job, work), *_chmod_hook(job)]
            outcome.hooks += [hook for hook in hooks if hook not in outcome.hooks]
    return outcome


class JobsOutcome:
    """The hooks for the remaining work inside the container, and the work that is not possible."""

    __slots__ = ("hooks", "left_out")

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        self.left_out: list[str] = []


def root_path(bundle: str, spec: dict[str, Any]) -> str:
    """Return the host path of the root file system; GH1306 if config.json names none."""
    root = spec.get("root")
    path = root.get("path") if isinstance(root, dict) else None
    if not isinstance(path, str) or not path:
        raise fault("GH1306", bundle=bundle, reason="it has no root.path")
    whole = os.path.join(bundle, path)
    if not os.path.isdir(whole):
        raise fault("GH1306", bundle=bundle, reason=f"{whole} is no directory")
    return os.path.abspath(whole)


def nodes(spec: dict[str, Any]) -> list[str]:
    """Return the paths of a container's device nodes, and all mount destinations."""
    return [*oci_spec.device_paths(spec), *_destinations(spec)]


def _is_done(
    root: Root,
    spec: dict[str, Any],
    foreign: list[Covered],
    todo: list[Jobs],
    engine: list[Jobs],
    *,
    outcome: JobsOutcome,
    work: RootfsWork,
) -> bool:
    """Do `todo`, except params and chmod, unless the hooks have to do it.

    ldconfig has to run in a hook: it must see the libraries at their paths in the container. The
    same applies before a hook of NVIDIA's toolkit, which would treat unknown entries as outdated.
    """
    if any(job.ldconfig for job in todo) or is_beside_toolkit(spec):
        return False
    whole, reasons = rootfs_plan.rootfs_plan(root, todo, nodes(spec))
    if engine and whole.libraries:
        whole.together = rootfs_plan.rootfs_plan(root, engine)[0]
        if not set(whole.entries()).issubset(whole.together.entries()):
            return False
    if _is_covered(root, whole.paths(), foreign):
        return False
    with _identity(spec):
        # In a user namespace the container's root works here, who has no state on the node.
        is_replayed = work.is_recorded and os.geteuid() == 0
        failures = provide(root, whole, is_replayed=is_replayed)
    if any(_is_the_hooks(failure, spec) for failure in failures):
        return False
    outcome.left_out += reasons
    for failure in failures:
        if not isinstance(failure, IsADirectoryError):
            raise failure
        outcome.left_out.append(f"{failure.filename}: the image has a directory there")
    return True


def _is_the_hooks(failure: OSError, spec: dict[str, Any]) -> bool:
    """Return whether a step that failed here may work inside the container.

    In a user namespace whose mapping is not in config.json (it joins another's), the host's root
    may have no id in that file system.
    """
    if isinstance(failure, CrossingError):
        return True
    return failure.errno in _NO_IDENTITY and oci_spec.user_namespace(spec)


def _destinations(spec: dict[str, Any]) -> list[str]:
    mounts = [mount for mount in spec.get("mounts") or () if isinstance(mount, dict)]
    found = [mount.get("destination") for mount in mounts]
    return [path for path in found if isinstance(path, str)]


def _is_covered(root: Root, paths: list[str], foreign: list[Covered]) -> bool:
    """Return whether a mount of the container covers one of `paths`."""
    parents = {path.rpartition("/")[0] for path in paths}
    real = {parent: root.real(parent).rstrip("/") + "/" for parent in parents}
    targets = set(real.values())
    files = {real[parent] + name for parent, _, name in (path.rpartition("/") for path in paths)}
    for destination, place in foreign:
        if destination in paths or place in files:
            return True
        below = place.rstrip("/") + "/"
        if any(target.startswith(below) for target in targets):
            return True
    return False


def _identity(spec: dict[str, Any]) -> Identity:
    """Return the ids of the container's root on the host, by config.json."""
    if not oci_spec.user_namespace(spec):
        return Identity(0, 0)
    linux = spec["linux"]
    return Identity(_mapped(linux.get("uidMappings")), _mapped(linux.get("gidMappings")))


def _mapped(mappings: object) -> int:
    for mapping in mappings if isinstance(mappings, list) else ():
        if isinstance(mapping, dict) and mapping.get("containerID") == 0:
            return int(mapping.get("hostID") or 0)
    return 0


def _params_hook(
    root: str, spec: dict[str, Any], foreign: list[Covered], job: Jobs, work: RootfsWork
) -> list[Hook]:
    """Return the hook that masks the driver's parameters, if those of this host need it."""
    content = driver_params.masked(job.host_root) if job.driver_params else None
    if content is None or all(path != "/proc" for path, _ in foreign):
        return []
    hook = None
    if not oci_spec.user_namespace(spec) and _is_plain_proc(spec, foreign):
        try:
            hook = driver_params.mount_hook(work.masked_file(content), root)
        except OSError:
            hook = None
    return [hook or _python_hook(_only_params(job))]


def _is_plain_proc(spec: dict[str, Any], foreign: list[Covered]) -> bool:
    """Return whether a container's /proc is procfs, with no other mount over or below it.

    mount(8) follows links: a link in a volume would lead it to a file of the host.
    """
    places = [place.rstrip("/") + "/" for _, place in foreign]
    if sum(place == "/" or place.startswith("/proc/") for place in places) != 1:
        return False
    mounts = [one for one in fastjson.objects(spec, "mounts") if one.get("destination") == "/proc"]
    return any(one.get("type") == "proc" or one.get("source") == "/proc" for one in mounts)


def _chmod_hook(job: Jobs) -> list[Hook]:
    if not job.chmod:
        return []
    rest = Jobs(job.hook_path)
    rest.chmod = job.chmod
    return [_python_hook(rest)]


def _only_params(job: Jobs) -> Jobs:
    rest = Jobs(job.hook_path)
    rest.driver_params, rest.host_root = True, job.host_root
    return rest


def _python_hook(job: Jobs) -> Hook:
    hook = job.hook()
    hook["env"].append(HOOK_MARK + "apply")
    return hook
