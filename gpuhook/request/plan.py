# SPDX-License-Identifier: Apache-2.0
"""From what a container requests to what it gets: request -> policy -> resolve -> edits.

The wrapper, the prestart hook, `attach`, `explain` and `compare` call this one plan; they differ in
what they do with the edits. Nothing is written or logged here. The node answers what depends on the
vendor; its protocol is vendors/interface.py.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import bundle
from gpuhook.host.hot import settings as node_settings
from gpuhook.request import mount_requests, parse, policy
from gpuhook.request.resolve import Grant, resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.parse import Vocabulary
    from gpuhook.vendors.interface import HookJobs, VendorNode


class Injection:
    """What a container gets: `edits`, and the jobs of our hooks, which are not part of the edits.

    `source` is the request that applies, None if there is none. `grant` is what it resolves to. A
    container that starts without devices has an empty one, and `is_given` is False. `requirements`
    are the container's variables if they may require something of the driver, else empty.
    `warnings` are for the log.
    """

    __slots__ = ("edits", "grant", "hook_jobs", "is_given", "requirements", "source", "warnings")

    def __init__(self, source: parse.Source | None, warnings: list[GpuhookError]) -> None:
        self.source = source
        self.warnings = warnings
        self.grant = Grant()
        self.edits: ContainerEdits = {}
        self.is_given = False
        self.hook_jobs: list[HookJobs] = []
        self.requirements: Mapping[str, str] = {}


def plan(
    spec: dict[str, Any],
    settings: Settings,
    node: VendorNode,
    source: parse.Source | None = None,
    warnings: list[GpuhookError] | None = None,
) -> Injection:
    """Return what the container of `spec`, a config.json, gets on a node with these settings.

    `source` is what request_source() returns, if the caller has that already. Warnings are added to
    `warnings`, also if this raises. Raises the faults of request_source(), resolve_source() and
    take_jobs().
    """
    logged: list[GpuhookError] = [] if warnings is None else warnings
    source = source or request_source(spec, settings, node, logged)
    injection = Injection(source, logged)
    found = None if source is None else resolve_source(spec, source, settings, node, logged)
    if found is not None:
        take_jobs(injection, *found, node)
        injection.requirements = requirements(spec, settings, node)
    return injection


def plan_names(names: Sequence[str], capabilities: frozenset[str], node: VendorNode) -> Injection:
    """Return the injection of the devices `names`, regardless of what the container requests.

    Raises the faults of resolve_names() and take_jobs().
    """
    injection = Injection(None, [])
    take_jobs(injection, resolve_names([*names], capabilities, node), capabilities, node)
    return injection


def request_source(
    spec: dict[str, Any], settings: Settings, node: VendorNode, warnings: list[GpuhookError]
) -> parse.Source | None:
    """Return the source of the request that applies, None if nothing is requested.

    Adds to `warnings`. Raises GH1026 for a source that policy refuses, if the settings say so, and
    the faults of verdict().
    """
    found = verdict(spec, settings, node)
    if found.refused:
        warnings += policy.objections(found, settings)
    if settings.accept_volume_mounts:
        words = node.vocabulary
        malformed = mount_requests.names(
            spec.get("mounts"), words.mount_prefix, words.extra_mounts
        )[1]
        warnings += [fault("GH1028", path=path) for path in malformed]
    return found.chosen


def verdict(spec: dict[str, Any], settings: Settings, node: VendorNode) -> policy.Verdict:
    """Return the decision of the node's policy on each source of a request.

    Raises GH1004 and GH1005 for a malformed source.
    """
    found = parse.sources(
        spec,
        node.vocabulary,
        settings.annotation_prefixes,
        _resources(spec, settings, node),
        takes_legacy=settings.legacy_images,
        accept=settings.accept_annotations,
    )
    sources = [one for one in (_served(source, node) for source in found) if one is not None]
    if sources and sources[-1].kind == parse.IMAGE and _has_devices(spec, node):
        sources.pop()  # the container has its devices already
    return policy.judge(sources, spec, settings)


def _resources(spec: dict[str, Any], settings: Settings, node: VendorNode) -> list[str]:
    """Return the variables of an orchestrator that name the node's devices."""
    if not settings.swarm_resources:
        return []
    environment = parse.environment(spec)
    return [
        variable
        for variable in settings.swarm_resources
        if node.serves_resource(variable, environment.get(variable, ""))
    ]


def _served(source: parse.Source, node: VendorNode) -> parse.Source | None:
    """Return a source without the CDI names of other vendors, None if it has no others.

    Annotations name devices of any vendor; variables and mounts are one vendor's own.
    """
    if source.kind not in (parse.ANNOTATIONS, parse.POD_ANNOTATIONS):
        return source
    names = [name for name in source.names if node.serves(name)]
    if len(names) == len(source.names):
        return source
    return parse.Source(source.kind, source.where, names, source.origin) if names else None


def resolve_source(
    spec: dict[str, Any],
    source: parse.Source,
    settings: Settings,
    node: VendorNode,
    warnings: list[GpuhookError],
) -> tuple[Grant, frozenset[str]] | None:
    """Return the grant of a source with the container's capabilities.

    None if the container may start without. Adds to `warnings`. Raises GH1006, the faults of
    policy.py, of capabilities() and of resolve_names().
    """
    if not source.is_grant and not node.has_driver():
        warnings.append(policy.without_driver(source, settings, node.missing_driver()))
        return None
    unknown: list[str] = []
    chosen = capabilities(spec, settings, node, unknown)
    if unknown:
        named, known = ", ".join(unknown[:8]), ", ".join(node.capability_words)
        warnings.append(fault("GH1061", words=named, known=known))
    policy.require_own_vendor(source, node.kind, spec)
    names = source.names
    if parse.has_extras(spec, node.vocabulary) or any(map(node.is_extra, names)):
        bundle.load("gpuhook.request.extra_requests")
        from gpuhook.request import extra_requests

        names = extra_requests.with_extras(spec, source, settings, node, warnings)
    return resolve_names([*names, *node.further_names(spec)], chosen, node, source), chosen


def capabilities(
    spec: dict[str, Any], settings: Settings, node: VendorNode, unknown: list[str] | None = None
) -> frozenset[str]:
    """Return the driver capabilities that a container requests, of those that it may have.

    A legacy image gets all of these unless it names some. Raises as parse_capabilities() does.
    """
    environment = parse.environment(spec)
    text = environment.get(node.vocabulary.capabilities_env)
    if text is None and settings.legacy_images and parse.is_legacy(environment, node.vocabulary):
        text = "all"
    return parse_capabilities(text, settings, node, unknown)


def parse_capabilities(
    text: str | None, settings: Settings, node: VendorNode, unknown: list[str] | None = None
) -> frozenset[str]:
    """Return the capabilities in a list of them, by the node's settings.

    Words that the settings ignore are added to `unknown`. Raises GH1020 for an unknown one if the
    settings say so, GH1027 for one that the container may not have.
    """
    if settings.on_unknown_capability != node_settings.IGNORE:
        unknown = None
    elif unknown is None:
        unknown = []
    return node.parse_capabilities(
        text, settings.driver_capabilities, settings.default_driver_capabilities, unknown
    )


def take_jobs(
    injection: Injection, grant: Grant, capabilities: frozenset[str], node: VendorNode
) -> None:
    """Set the grant of an injection, and move the jobs of our hooks out of its edits.

    Raises GH1120 if a spec, or one of them, does not match the current state of this host.
    """
    for spec in grant.specs:
        node.require_current(spec)
    grant.edits, found = node.take_jobs(grant.edits, capabilities)
    for job in found:
        node.require_fresh(job)
    injection.grant, injection.edits, injection.hook_jobs = grant, grant.edits, found
    injection.is_given = True


def with_void(edits: ContainerEdits, words: Vocabulary) -> ContainerEdits:
    """Return `edits` with the entry of the devices' variable that disables other hooks."""
    kept, void = edits.copy(), words.devices_env + "=void"
    env = edits.get("env") or []
    kept["env"] = [*env] if void in env else [*env, void]
    return kept


def requirements(spec: dict[str, Any], settings: Settings, node: VendorNode) -> Mapping[str, str]:
    """Return the container's variables, {} if none of them requires something of the driver."""
    environment = parse.environment(spec)
    if settings.disable_requirements or not node.requires(environment):
        return {}
    return environment


def _has_devices(spec: dict[str, Any], node: VendorNode) -> bool:
    """Return whether an engine gave a container devices of the vendor.

    A privileged container has every device of the host, which proves nothing.
    """
    return node.has_nodes(spec) and not policy.privileged(spec)
