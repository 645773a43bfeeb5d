# SPDX-License-Identifier: Apache-2.0
"""From what a container asks for to what it gets: request -> policy -> resolve.

The wrapper, the prestart hook and `attach` go this one way; what they do with the edits differs.
"""

from __future__ import annotations

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import bundle, state
from gpuhook.host.hot import settings as node_settings
from gpuhook.request import mount_requests, parse, policy, resolve
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.hot import vocabulary as words
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Hook
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.nvidia.hot.gpu_facts import Known
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

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

    def source(self, spec: dict[str, Any]) -> parse.Source | None:
        """Return the source of the request that counts, None where nothing is asked for.

        Raises GH1026 for one that policy refuses, where the settings say so; it is logged if not.
        Raises what oci.require_unambiguous() does for a container that requests something.
        """
        verdict = self.verdict(spec)
        for refused, reason in verdict.refused:
            if verdict.chosen is not None and verdict.chosen.names == refused.names:
                continue  # nothing is lost: another source requests the same
            names = ", ".join(refused.names[:8])
            if self.settings.on_refusal == node_settings.FAIL:
                raise fault("GH1026", names=names, where=refused.where, reason=reason)
            self.log.warning(fault("GH1007", names=names, where=refused.where, reason=reason))
        if self.settings.accept_volume_mounts:
            self._warn_of_mounts(spec)
        if verdict.chosen is not None:
            oci_spec.require_unambiguous(spec)
        return verdict.chosen

    def verdict(self, spec: dict[str, Any]) -> policy.Verdict:
        """Return what the node's policy says of each source of a request; nothing is logged.

        Raises GH1004 and GH1005 for a source that cannot be read.
        """
        settings = self.settings
        sources = parse.sources(
            spec,
            words.VOCABULARY,
            settings.annotation_prefixes,
            settings.swarm_resources,
            takes_old=settings.legacy_images,
            accept=settings.accept_annotations,
        )
        if sources and sources[-1].kind == parse.IMAGE and _has_been_given(spec):
            sources.pop()
        return policy.judge(sources, spec, settings)

    def _warn_of_mounts(self, spec: dict[str, Any]) -> None:
        vocabulary = words.VOCABULARY
        mounts, prefix = spec.get("mounts"), vocabulary.mount_prefix
        for path in mount_requests.names(mounts, prefix, vocabulary.extra_mounts)[1]:
            self.log.warning(fault("GH1028", path=path))

    def of(self, spec: dict[str, Any], source: parse.Source) -> resolve.Grant | None:
        """Return what the container gets; None where it may start without."""
        found = self._granted(spec, source)
        return None if found is None else found[0]

    def _granted(
        self, spec: dict[str, Any], source: parse.Source
    ) -> tuple[resolve.Grant, frozenset[str]] | None:
        """Return of() and capabilities() of a container."""
        if not source.is_grant and not self.has_driver():
            is_rest = source.names == [resolve.NOTHING_BUT_FILES]
            what = "the driver's files" if is_rest else "GPUs"
            if self.settings.on_missing_driver == "start":
                self.log.warning(fault("GH1008", where=source.where, what=what))
                return None
            raise fault("GH1006", where=source.where, what=what)
        capabilities = self.capabilities(spec)
        if self.settings.on_unknown_capability == node_settings.IGNORE:
            self._warn_of_capabilities(spec)
        policy.require_own_vendor(source, self.default_kind(), spec)
        names = source.names
        if parse.has_extras(spec, words.VOCABULARY) or any(map(words.is_extra, names)):
            names = _beside().names(self, spec, source)
        return self.named([*names, *self.csv_mounts(spec)], capabilities, source), capabilities

    def capabilities(self, spec: dict[str, Any]) -> frozenset[str]:
        """Return the driver capabilities that a container asks for, of those that it may have.

        An image of old gets all of these unless it names some. Raises GH1020 for an unknown one
        where the settings say so, GH1027 for one that it may not have.
        """
        environment = parse.environment(spec)
        text = environment.get(words.VOCABULARY.capabilities_env)
        is_of_old = parse.is_of_old(environment, words.VOCABULARY)
        if text is None and is_of_old and self.settings.legacy_images:
            text = "all"
        return self.parsed_capabilities(text)

    def parsed_capabilities(
        self, text: str | None, unknown: list[str] | None = None
    ) -> frozenset[str]:
        """Return the capabilities that a list of them names; raises as capabilities() does.

        Words that the settings ignore are added to `unknown`.
        """
        chosen = self.settings
        if chosen.on_unknown_capability != node_settings.IGNORE:
            unknown = None
        elif unknown is None:
            unknown = []
        return words.parse_capabilities(
            text, chosen.driver_capabilities, chosen.default_driver_capabilities, unknown
        )

    def _warn_of_capabilities(self, spec: dict[str, Any]) -> None:
        unknown: list[str] = []
        text = parse.environment(spec).get(words.VOCABULARY.capabilities_env)
        self.parsed_capabilities(text, unknown)
        if unknown:
            named = ", ".join(unknown[:8])
            self.log.warning(fault("GH1061", words=named, known=", ".join(words.CAPABILITIES)))

    def csv_mounts(self, spec: dict[str, Any]) -> list[str]:
        """Return the device with all that a Tegra's files name, [] for who does not ask for it.

        It is [] as well where those files name nothing more than every container gets.
        """
        variable, value = words.CSV_MOUNTS
        if parse.environment(spec).get(variable) != value:
            return []
        kind = self.default_kind()
        try:
            known = self.registry().names(kind)
        except GpuhookError:
            return []  # no spec of this kind, or two that contradict each other
        return [f"{kind}={words.CSV_DEVICE}"] if words.CSV_DEVICE in known else []

    def named(
        self,
        names: list[str],
        capabilities: frozenset[str],
        source: parse.Source | None = None,
    ) -> resolve.Grant:
        """Return the grant of the devices `names`, as far as `capabilities` need its parts.

        `source` is where a container requests them: a fault names it.
        """
        return resolve.resolve(
            names,
            self.default_kind(),
            self.registry_for(names),
            alias=self.alias,
            adjust=lambda compiled, edits: filtered(compiled, edits, capabilities),
            full_names=self.full_names,
            refusal=lambda name, error: _node_devices().refusal(self, name, error, source),
            apart=(words.CSV_DEVICE,),
        )

    def given(
        self, spec: dict[str, Any], source: parse.Source
    ) -> tuple[resolve.Grant, list[hook_args.Jobs]] | None:
        """Return what the container gets, and the jobs of our hooks in it.

        None where it may start without. Specs that are stale are written anew first, where the
        settings say so. Raises as of() and jobs() do.
        """

        def judged() -> tuple[resolve.Grant, list[hook_args.Jobs]] | None:
            found = self._granted(spec, source)
            return None if found is None else (found[0], self.jobs(*found))

        return self.by_fresh_specs(judged)

    def by_fresh_specs(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; once more where stale specs kept it from that at first.

        It changes nothing, and is called a few times.
        """
        try:
            return work()
        except GpuhookError as error:
            if self._refresh is None:
                raise
            from gpuhook.entry import stale_retry  # hardly ever

            if not stale_retry.mended(self, error, work, self._refresh):
                raise
        return work()

    def forget(self) -> None:
        """Forget what was read of the node's specs: they were written anew."""

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the paths of each device's own nodes, see node_devices.py."""
        return _node_devices().nodes_by_device(self)  # type: ignore[no-any-return]

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`."""
        return _node_devices().covered(self, nodes)  # type: ignore[no-any-return]

    def nvml(self) -> str:
        """Return the host path of the NVML library that this node's specs mount, "" for none."""
        return _node_devices().nvml(self)  # type: ignore[no-any-return]

    def jobs(self, grant: resolve.Grant, capabilities: frozenset[str]) -> list[hook_args.Jobs]:
        """Return the jobs of our hooks in the grant, each once, and take these hooks out of it.

        Raises GH1120 if one of them describes another state of this host.
        """
        found = _jobs_of(grant.edits, capabilities)
        for job in found:
            self.require_fresh(job)
        return found

    def require(self, spec: dict[str, Any], todo: Sequence[Jobs], nodes: Iterable[str]) -> None:
        """Raise GH1043 to GH1046 if the container's variables require what it does not get.

        `todo` are the jobs that came with its devices, `nodes` the paths of their nodes. What
        cannot be judged is a warning, GH1047.
        """
        environment = parse.environment(spec)
        if self.settings.disable_requirements or not words.requires(environment):
            return
        bundle.load("gpuhook.entry.requirement_check")
        from gpuhook.entry import requirement_check

        for doubt in requirement_check.doubts(environment, todo, nodes, self.noted):
            self.log.warning(doubt)

    def noted(self) -> Known:
        """Return what is known of the driver and the GPUs where their description says nothing."""
        from gpuhook.vendors.nvidia.hot import gpu_facts

        return gpu_facts.noted()

    def has_driver(self) -> bool:
        """Return whether this node has a driver loaded."""
        return host_fingerprint.driver_is_loaded(state.host_root())

    def alias(self, name: str) -> str | None:
        """Return what the node's specs call the GPU with another name, None if nobody knows.

        What generate-cdi noted counts; without that, what specs and kernel tell.
        """
        return _node_devices().alias(self, name)  # type: ignore[no-any-return]

    def full_names(self, name: str) -> list[str]:
        """Return the names that a short form stands for, [] for another name; raises GH1060."""
        return _node_devices().full_names(self, name)  # type: ignore[no-any-return]

    def other_names(self) -> list[str]:
        """Return other names of the devices that alias() knows, at least the UUIDs."""
        return _node_devices().other_names()  # type: ignore[no-any-return]

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
    bundle.load("gpuhook.entry.extra_devices")
    from gpuhook.entry import extra_devices

    return extra_devices


def _node_devices() -> types.ModuleType:
    """Return the module of devices' other names and their nodes, which few creates need."""
    bundle.load("gpuhook.entry.node_devices")
    from gpuhook.entry import node_devices

    return node_devices


def _has_been_given(spec: dict[str, Any]) -> bool:
    """Return whether somebody has given a container devices of ours, and meant those.

    A privileged container has every device of the host, which says nothing.
    """
    has_nodes = any(words.is_node(path) for path in oci_spec.device_paths(spec))
    return has_nodes and not policy.privileged(spec)


def require_fresh(job: hook_args.Jobs) -> None:
    """Raise GH1120 if the spec that a job comes from describes another state of this host."""
    changed = changes(job)
    if changed:
        raise fault("GH1120", changes="; ".join(changed))


def own_jobs(spec: Compiled) -> list[Jobs]:
    """Return the jobs of our hooks in a spec, [] for another one's spec."""
    hooks = spec.edits.get("hooks") or ()
    return [hook_args.of_hook(hook) for hook in hooks if hook_args.is_ours(hook)]


def changes(job: Jobs) -> list[str]:
    """Return what is another on this host since the spec of a job was written, a phrase each."""
    if not job.fingerprint:
        return []
    now = host_fingerprint.fingerprint(job.host_root, job.libcuda)
    return host_fingerprint.differences(job.fingerprint, now)


def _jobs_of(edits: ContainerEdits, capabilities: frozenset[str]) -> list[hook_args.Jobs]:
    hooks = edits.get("hooks") or []
    ours: list[Hook] = []
    for hook in hooks:
        if hook_args.is_ours(hook) and all(hook["args"] != other["args"] for other in ours):
            ours.append(hook)
    edits["hooks"] = [hook for hook in hooks if not hook_args.is_ours(hook)]
    found = [hook_args.of_hook(hook) for hook in ours]
    for job in found:
        if job.needs or capabilities != words.EVERY:
            job.keep(wanted(job.needs, capabilities))
    return found


def wanted(
    needs: Mapping[str, frozenset[str]], capabilities: frozenset[str]
) -> Callable[[str], bool]:
    """Return what tells of a path whether a container with `capabilities` gets what is there.

    `needs` are the capabilities of files whose names do not tell them.
    """
    if not needs:
        return words.chooser(capabilities)

    def is_wanted(path: str) -> bool:
        own = needs.get(path)
        if own is not None:
            return not capabilities.isdisjoint(own)
        return words.wanted(path, capabilities)

    return is_wanted


def _needs(edits: ContainerEdits) -> dict[str, frozenset[str]]:
    """Return the capabilities that the hooks among `edits` tell of files."""
    found: dict[str, frozenset[str]] = {}
    for hook in edits.get("hooks") or ():
        if hook_args.NEEDS in (hook.get("args") or ()) and hook_args.is_ours(hook):
            found.update(hook_args.of_hook(hook).needs)
    return found


def filtered(
    compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
) -> ContainerEdits:
    """Return `edits` without the nodes and mounts that the container's capabilities do not need."""
    if compiled.kind.partition("/")[0] not in (words.VENDOR, words.PLUGIN_VENDOR):
        return edits
    if hook_args.is_whole(compiled.edits):
        return edits
    needs = _needs(edits)
    if capabilities == words.EVERY and not needs:
        return edits
    kept = edits.copy()
    is_wanted = wanted(needs, capabilities)
    if "deviceNodes" in edits:
        kept["deviceNodes"] = [node for node in edits["deviceNodes"] if is_wanted(node["path"])]
    if "mounts" in edits:
        kept["mounts"] = [m for m in edits["mounts"] if is_wanted(m["containerPath"])]
    return kept
