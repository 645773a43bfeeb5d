# SPDX-License-Identifier: Apache-2.0
"""The parts of a spec's edits, and of our hooks' jobs, that driver capabilities need."""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Hook


def take_jobs(
    edits: ContainerEdits, capabilities: frozenset[str]
) -> tuple[ContainerEdits, list[Jobs]]:
    """Return `edits` without our hooks, and the jobs of these that the capabilities need.

    Hooks with the same arguments are one job.
    """
    hooks = edits.get("hooks") or []
    ours: list[Hook] = []
    for hook in hooks:
        if hook_args.is_ours(hook) and all(hook["args"] != other["args"] for other in ours):
            ours.append(hook)
    kept = edits.copy()
    kept["hooks"] = [hook for hook in hooks if not hook_args.is_ours(hook)]
    found = [hook_args.of_hook(hook) for hook in ours]
    for job in found:
        if job.needs or capabilities != vocabulary.EVERY:
            job.keep(chooser(job.needs, capabilities))
    return kept, found


def chooser(
    needs: Mapping[str, frozenset[str]], capabilities: frozenset[str]
) -> Callable[[str], bool]:
    """Return the test of a path: whether a container with `capabilities` gets the file there.

    `needs` are the capabilities of files whose names do not imply them.
    """

    def is_wanted(path: str) -> bool:
        own = needs.get(path)
        if own is not None:
            return not capabilities.isdisjoint(own)
        return vocabulary.is_wanted(path, capabilities)

    return is_wanted


def _needs(edits: ContainerEdits) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for hook in edits.get("hooks") or ():
        if hook_args.NEEDS in (hook.get("args") or ()) and hook_args.is_ours(hook):
            found.update(hook_args.of_hook(hook).needs)
    return found


def filter_edits(
    compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
) -> ContainerEdits:
    """Return `edits` without the nodes and mounts that the container's capabilities do not need."""
    if compiled.kind.partition("/")[0] not in (vocabulary.VENDOR, vocabulary.PLUGIN_VENDOR):
        return edits
    if hook_args.is_whole(compiled.edits):
        return edits
    needs = _needs(edits)
    if capabilities == vocabulary.EVERY and not needs:
        return edits
    kept = edits.copy()
    is_wanted = chooser(needs, capabilities)
    if "deviceNodes" in edits:
        kept["deviceNodes"] = [node for node in edits["deviceNodes"] if is_wanted(node["path"])]
    if "mounts" in edits:
        kept["mounts"] = [m for m in edits["mounts"] if is_wanted(m["containerPath"])]
    return kept
