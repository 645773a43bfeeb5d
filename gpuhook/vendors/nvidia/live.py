# SPDX-License-Identifier: Apache-2.0
"""What the jobs of our hook mean for a container that exists.

WARM. In a config.json they are a hook; here they become mounts and a provision, so that they are
planned, done and undone like everything else.
"""

from __future__ import annotations

from gpuhook.container.live import Wanted
from gpuhook.container.provide import Provision
from gpuhook.container.walk import CrossingError
from gpuhook.vendors.nvidia import params, profile, provision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.edits import ContainerEdits, Mount
    from gpuhook.container.live_root import LiveRoot
    from gpuhook.container.made import Made
    from gpuhook.vendors.nvidia.jobs import Jobs

_MASK_OPTIONS = ["ro", "nosuid", "nodev", "noexec", "bind"]
_GRAPHICS = frozenset(("graphics", "display"))


def wanted(root: LiveRoot, edits: ContainerEdits, todo: list[Jobs]) -> tuple[Wanted, list[str]]:
    """Return what the container is to have, and why its image's CUDA compatibility is left out."""
    whole = edits.copy()
    # What is `void` in a config.json would be a variable of a process that runs.
    whole["env"] = [entry for entry in edits.get("env") or () if not entry.endswith("=void")]
    provisions, reasons = [], []
    for job in todo:
        made, reason = provision.of(root, job)
        provisions.append(made)
        reasons += [reason] if reason else []
        mounts = whole.get("mounts") or []
        masks = [mask for mask in _masks(root, job) if mask not in mounts]
        if masks:
            whole["mounts"] = [*mounts, *masks]
    return Wanted(whole, provisions), reasons


def add_profile(wanted: Wanted, root: LiveRoot, capabilities: frozenset[str]) -> None:
    """Add the application profile for the nodes that are wanted and there, if EGL will look."""
    if wanted.provisions and not _GRAPHICS.isdisjoint(capabilities):
        nodes = [node["path"] for node in wanted.edits.get("deviceNodes") or ()]
        wanted.provisions.append(_profile(nodes + _held(root)))


def profile_renewed(made: Made, nodes: list[str]) -> Wanted | None:
    """Return what makes the application profile right for `nodes`, None if none was made."""
    if all(path != profile.PATH for path, *_ in made.changes):
        return None
    return Wanted({}, [_profile(nodes)])


def _profile(nodes: list[str]) -> Provision:
    provided = Provision([], [], [])
    provided.files.append((profile.PATH, profile.content(nodes)))
    return provided


def _held(root: LiveRoot) -> list[str]:
    """Return what is in the container's /dev, as far as that is its own."""
    try:
        return [f"/dev/{name}" for name in root.names("/dev")]
    except CrossingError:
        return []


def _masks(root: LiveRoot, job: Jobs) -> list[Mount]:
    """Return the mount that hides ModifyDeviceFiles: 1, where host and container need it."""
    content = params.masked(job.host_root) if job.driver_params else None
    if content is None or root.found(params.PATH) is None:
        return []
    source = params.masked_file(content)
    return [{"hostPath": source, "containerPath": params.PATH, "options": _MASK_OPTIONS}]
