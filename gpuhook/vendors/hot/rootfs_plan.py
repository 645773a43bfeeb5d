# SPDX-License-Identifier: Apache-2.0
"""The links and libraries that the hook's jobs need in a root file system."""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.provision import Provision, soname_links
from gpuhook.vendors.nvidia.hot.rootfs import egl_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.apply.rootfs.root_directory import Root


_EGL = "libEGL_nvidia.so.0"


def needs_profile_of(job: Jobs) -> bool:
    """Return whether a job has EGL, which reads the application profile, and does not skip that."""
    has_egl = any(soname == _EGL for _, soname in job.libraries)
    return has_egl and hook_args.PROFILE not in job.skipped


def rootfs_plan(
    root: Root, todo: Sequence[Jobs], nodes: Sequence[str] = ()
) -> tuple[Provision, list[str]]:
    """Return (the provision for all of `todo`, why the image's CUDA compatibility is skipped).

    With the container's device nodes `nodes`, the provision has EGL's profile of these GPUs.
    """
    libraries: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    preferred: list[tuple[str, str]] = []
    reasons: list[str] = []
    has_profile = False
    for job in todo:
        if hook_args.LOADER not in job.skipped:
            libraries += job.libraries
        elif hook_args.LINKS not in job.skipped:
            links += soname_links(job.libraries)
        links += job.links
        has_profile = has_profile or needs_profile_of(job)
        chosen, reason = _preferred(root, job)
        preferred += chosen
        reasons += [reason] if reason and reason not in reasons else []
    made = Provision(_once(libraries), _once(links), _once(preferred))
    if nodes and has_profile:
        made.files.append((egl_profile.PATH, egl_profile.content(nodes)))
    return made, reasons


def beside(
    root: Root, job: Jobs, others: Sequence[Jobs], nodes: Sequence[str] = ()
) -> tuple[Provision, list[str]]:
    """Return rootfs_plan() of `job`, for a container whose jobs are all of `others`.

    The loader's files end up the same in any order of the jobs.
    """
    made, reasons = rootfs_plan(root, [job], nodes)
    if len(others) > 1:
        made.together = rootfs_plan(root, others)[0]
    return made, reasons


def _preferred(root: Root, job: Jobs) -> tuple[list[tuple[str, str]], str]:
    if not (job.cuda_compat and (job.driver_version or job.cuda_version) and job.libraries):
        return [], ""
    if hook_args.LOADER in job.skipped:
        return [], ""
    names = root.names(job.cuda_compat)
    if not names:
        return [], ""
    from gpuhook.vendors.nvidia.hot.rootfs import cuda_compat  # most images have none

    return cuda_compat.libraries(root, job.cuda_compat, names, job.driver_version, job.cuda_version)


def _once(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(pairs))
