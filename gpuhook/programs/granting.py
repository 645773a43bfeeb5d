# SPDX-License-Identifier: Apache-2.0
"""From what a container asks for to what it gets: request -> policy -> resolve.

HOT. The wrapper, the prestart hook and `attach` go this one way; what they do with the edits
differs.
"""

from __future__ import annotations

import os

from gpuhook import state
from gpuhook.cdi import registry
from gpuhook.errors import GpuhookError, fault
from gpuhook.grant import policy, request, resolve
from gpuhook.programs import bundled
from gpuhook.settings import REFRESH
from gpuhook.vendors.nvidia import freshness, jobs, known_node, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Collection, Sequence
    from typing import Any, TypeVar

    from gpuhook.cdi.cache import Compiled
    from gpuhook.cdi.edits import ContainerEdits, Hook
    from gpuhook.cdi.registry import Registry
    from gpuhook.engine_log import EngineLog
    from gpuhook.settings import Settings
    from gpuhook.vendors.nvidia.jobs import Jobs

    T = TypeVar("T")


class Granting:
    """The node's settings, its CDI specs, and where to report what was refused.

    Where the node is not this machine, it is not `is_here`: its /dev cannot be looked at.
    """

    is_here = True

    def __init__(
        self,
        settings: Settings,
        log: EngineLog,
        compile_spec: Callable[[str], None],
        refresh: Callable[[Callable[[], bool]], str] | None = None,
    ) -> None:
        """Take what grants are made by.

        `refresh(is_needed)` has stale specs written anew and returns why it failed, or "". Who
        only looks has none.
        """
        self.settings = settings
        self.log = log
        self._compile_spec = compile_spec
        self._refresh = refresh

    def source(self, spec: dict[str, Any]) -> request.Source | None:
        """Return the source of the request that counts, None where nothing is asked for."""
        sources = request.sources(spec, words.VOCABULARY, self.settings.annotation_prefixes)
        verdict = policy.judge(sources, spec, self.settings)
        for refused, reason in verdict.refused:
            names = ", ".join(refused.names[:8])
            self.log.warning(fault("GH1007", names=names, where=refused.where, reason=reason))
        return verdict.chosen

    def of(self, spec: dict[str, Any], source: request.Source) -> resolve.Grant | None:
        """Return what the container gets; None where it may start without."""
        if not source.is_grant and not self.has_driver():
            if self.settings.on_missing_driver == "start":
                self.log.warning(fault("GH1008", where=source.where))
                return None
            raise fault("GH1006", where=source.where)
        capabilities = capabilities_of(spec)
        policy.require_own_vendor(source, self.default_kind())
        names = source.names
        if request.has_extras(spec, words.VOCABULARY) or any(map(words.is_extra, names)):
            names = _beside().names(self, spec, source)
        return self.named(names, capabilities)

    def named(self, names: list[str], capabilities: frozenset[str]) -> resolve.Grant:
        """Return the grant of the devices `names`, as far as `capabilities` need its parts."""
        return resolve.resolve(
            names,
            self.default_kind(),
            self.registry_for(names),
            alias=self.alias,
            adjust=lambda compiled, edits: filtered(compiled, edits, capabilities),
        )

    def given(
        self, spec: dict[str, Any], source: request.Source
    ) -> tuple[resolve.Grant, list[jobs.Jobs]] | None:
        """Return what the container gets, and the jobs of our hooks in it.

        None where it may start without. Specs that are stale are written anew first, where the
        settings say so. Raises as of() and jobs() do.
        """

        def judged() -> tuple[resolve.Grant, list[jobs.Jobs]] | None:
            grant = self.of(spec, source)
            return None if grant is None else (grant, self.jobs(grant, capabilities_of(spec)))

        return self.by_fresh_specs(judged)

    def by_fresh_specs(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; once more where stale specs kept it from that at first.

        It changes nothing, and is called a few times.
        """
        try:
            return work()
        except GpuhookError as error:
            if self._refresh is None or not self._is_mendable(error):
                raise
            trouble = self._refresh(lambda: self._is_still_wrong(work))
            self.forget()
            if trouble:
                self.log.warning(fault("GH1122", reason=trouble))
                raise
        return work()

    def forget(self) -> None:
        """Forget what was read of the node's specs: they were written anew."""

    def _is_still_wrong(self, work: Callable[[], object]) -> bool:
        self.forget()
        try:
            work()
        except GpuhookError as error:
            return self._is_mendable(error)
        return False

    def _is_mendable(self, error: GpuhookError) -> bool:
        """Return whether a refusal may be for want of a fresh spec: one that we would write."""
        if self.settings.on_stale != REFRESH or state.is_rootless():
            return False
        if error.code == "GH1120":
            return True
        found = self.registry()
        known = found.all()
        if error.code == "GH1104":
            # What a broken file was to describe is not known.
            is_there = any(spec.kind == self.default_kind() for spec in known) or found.broken
            return self.has_driver() and not is_there
        return error.code == "GH1102" and any(map(_is_stale, known))

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the paths of the device nodes of each device of the node's own kind.

        Without those that all of a spec's devices share. Devices go by their qualified names.
        """
        found = self.registry()
        kind = self.default_kind()
        nodes = {}
        for name in found.names(kind):
            _, edits = found.device(f"{kind}={name}")
            paths = (node["path"] for node in edits.get("deviceNodes") or ())
            nodes[f"{kind}={name}"] = frozenset(paths)
        return nodes

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`.

        They are those of the node's own specs and of a device plugin's.
        """
        found = self.registry()
        held = set()
        for kind in (self.default_kind(), words.PLUGIN_KIND):
            try:
                described = [(name, found.device(f"{kind}={name}")) for name in found.names(kind)]
            except GpuhookError:
                continue  # no spec of this kind, or two that contradict each other
            for name, (_, edits) in described:
                paths = {node["path"] for node in edits.get("deviceNodes") or ()}
                if paths and paths.issubset(nodes):
                    held.add(name)
        return frozenset(held)

    def nvml(self) -> str:
        """Return the host path of the NVML library that this node's specs mount, "" for none.

        A container's own mounts do not count: a volume may be named as a library of the driver is.
        """
        found = self.registry()
        for kind in (self.default_kind(), words.PLUGIN_KIND):
            try:
                specs = found.kind(kind)
            except GpuhookError:
                continue  # there is none of this kind
            for spec in specs:
                for mount in spec.edits.get("mounts") or ():
                    if words.is_nvml(mount["containerPath"]) and os.path.isfile(mount["hostPath"]):
                        return mount["hostPath"]
        return known_node.nvml()

    def jobs(self, grant: resolve.Grant, capabilities: frozenset[str]) -> list[jobs.Jobs]:
        """Return the jobs of our hooks in the grant, each once, and take these hooks out of it.

        Raises GH1120 if one of them describes another state of this host.
        """
        found = _jobs_of(grant.edits, capabilities)
        for job in found:
            self.require_fresh(job)
        return found

    def has_driver(self) -> bool:
        """Return whether this node has a driver loaded."""
        return freshness.driver_is_loaded(state.host_root())

    def alias(self, name: str) -> str | None:
        """Return what the node's specs call the GPU with another name, None if nobody knows."""
        return known_node.alias(name)

    def require_fresh(self, job: Jobs) -> None:
        """Raise GH1120 if the spec that a job comes from describes another state of this host."""
        require_fresh(job)

    def registry(self) -> registry.Registry:
        """Return the registry of this node's CDI specs."""
        vendor = self.default_kind().partition("/")[0]
        return registry.load(self.settings.spec_dirs, self._compile_spec, vendor)

    def registry_for(self, names: Sequence[str]) -> Registry:
        """Return that registry, with what the node itself shows of the kinds beside GPUs.

        Raises what on_the_spot.require_device raises for those of `names` that it has not.
        """
        if any(map(words.is_extra, names)):
            found: Registry = _beside().registry_for(self, names)
            return found
        return self.registry()

    def default_kind(self) -> str:
        """Return the kind that names without one are of."""
        return self.settings.default_kind or words.VOCABULARY.default_kind


def _beside() -> types.ModuleType:
    """Return the module of what is beside GPUs, which few containers need."""
    bundled.load("gpuhook.programs.beside")
    from gpuhook.programs import beside

    return beside


def capabilities_of(spec: dict[str, Any]) -> frozenset[str]:
    """Return the driver capabilities that a container asks for; GH1020 for an unknown one."""
    text = request.environment(spec).get(words.VOCABULARY.capabilities_env)
    return words.parse_capabilities(text)


def require_fresh(job: jobs.Jobs) -> None:
    """Raise GH1120 if the spec that a job comes from describes another state of this host."""
    if not job.fingerprint:
        return
    now = freshness.fingerprint(job.host_root, job.libcuda)
    changed = freshness.differences(job.fingerprint, now)
    if changed:
        raise fault("GH1120", changes="; ".join(changed))


def _is_stale(spec: Compiled) -> bool:
    """Return whether a spec of ours describes another state of this host."""
    for hook in spec.edits.get("hooks") or ():
        if jobs.is_ours(hook):
            job = jobs.of_hook(hook)
            now = freshness.fingerprint(job.host_root, job.libcuda)
            return bool(job.fingerprint and freshness.differences(job.fingerprint, now))
    return False


def _jobs_of(edits: ContainerEdits, capabilities: frozenset[str]) -> list[jobs.Jobs]:
    hooks = edits.get("hooks") or []
    ours: list[Hook] = []
    for hook in hooks:
        if jobs.is_ours(hook) and all(hook["args"] != other["args"] for other in ours):
            ours.append(hook)
    edits["hooks"] = [hook for hook in hooks if not jobs.is_ours(hook)]
    found = [jobs.of_hook(hook) for hook in ours]
    for job in found:
        job.keep(lambda path: words.wanted(path, capabilities))
    return found


def filtered(
    compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
) -> ContainerEdits:
    """Return `edits` without the nodes and mounts that the container's capabilities do not need."""
    if compiled.kind.partition("/")[0] not in (words.VENDOR, words.PLUGIN_VENDOR):
        return edits
    kept = edits.copy()
    if "deviceNodes" in edits:
        kept["deviceNodes"] = [
            node for node in edits["deviceNodes"] if words.wanted(node["path"], capabilities)
        ]
    if "mounts" in edits:
        kept["mounts"] = [
            m for m in edits["mounts"] if words.wanted(m["containerPath"], capabilities)
        ]
    return kept
