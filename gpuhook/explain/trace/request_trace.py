# SPDX-License-Identifier: Apache-2.0
"""The request of a container: capabilities, the grant, and ignored values."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.request import mount_requests, parse, plan
from gpuhook.request.resolve import Grant, resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.parse import Vocabulary
    from gpuhook.request.policy import Verdict
    from gpuhook.vendors.interface import VendorNode

_BY_DEFAULT = "request.defaultDriverCapabilities applies ({})"
_OF_OLD = "a legacy image ({} without {}) gets all"


def rule_of(spec: dict[str, Any], context: PlanContext) -> str:
    """Return the rule for a container's driver capabilities, and the setting that limits them."""
    environment, words = parse.environment(spec), context.node.vocabulary
    text = environment.get(words.capabilities_env)
    is_legacy = parse.is_legacy(environment, words)
    if text is None and is_legacy and context.settings.legacy_images:
        rule = _OF_OLD.format(words.image_version_env, words.image_requirement_env)
    elif text and text.strip(" ,") and not _is_ignored(text, context):
        rule = f"{words.capabilities_env}={text}"
    else:
        state = "not set" if text is None else "empty"
        if text and text.strip(" ,"):
            state = f"{text}, which has no known capability"
        default = ", ".join(context.settings.default_driver_capabilities)
        rule = f"{words.capabilities_env} is {state}: {_BY_DEFAULT.format(default)}"
    allowed = context.settings.driver_capabilities
    if allowed:
        rule += f", limited by request.driverCapabilities ({', '.join(allowed)})"
    return rule


def _is_ignored(text: str, context: PlanContext) -> bool:
    """Return whether the settings ignore all words of a list of capabilities."""
    unknown: list[str] = []
    try:
        plan.parse_capabilities(text, context.settings, context.node, unknown)
    except GpuhookError:
        return False
    return all(word.strip() in ("", *unknown) for word in text.split(","))


def requested_names(spec: dict[str, Any], verdict: Verdict, node: VendorNode) -> list[str]:
    """Return the requested devices, with those that other variables request."""
    chosen = verdict.chosen
    return [*chosen.names, *node.further_names(spec)] if chosen else []


def grant_of(
    answer: SimulatedAnswer, names: list[str], node: VendorNode, capabilities: frozenset[str]
) -> Grant:
    """Return the grant of the container, else the grant for the known ones of `names`."""
    if answer.edited.grant is not None:
        return answer.edited.grant
    known = [name for name in names if _is_known(name, node, capabilities)]
    return resolve_names(known, capabilities, node) if known else Grant()


def _is_known(name: str, node: VendorNode, capabilities: frozenset[str]) -> bool:
    try:
        resolve_names([name], capabilities, node)
    except GpuhookError:
        return False
    return True


def ignored_values(
    spec: dict[str, Any], devices: Iterable[dict[str, Any]], context: PlanContext
) -> list[str]:
    """Return a sentence for each ignored value; `devices` are of device_trace()."""
    environment, settings = parse.environment(spec), context.settings
    words = [one.node.vocabulary for one in context.every()]
    return [
        *_ignored_resources(environment, settings, context.node.vocabulary),
        *(text for one in words for text in _ignored_variables(spec, environment, one)),
        *_ignored_legacy_image(environment, settings, context.node.vocabulary),
        *(text for one in words for text in _ignored_mounts(spec, settings, one)),
        *_repeated_devices(devices),
    ]


def _ignored_resources(
    environment: Mapping[str, str], settings: Settings, words: Vocabulary
) -> Iterator[str]:
    """Yield what the variables of request.swarmResources override, and empty ones."""
    present = [name for name in settings.swarm_resources if name in environment]
    name = words.devices_env
    if present and name in environment:
        yield (
            f"{name}={environment[name]} is ignored: {', '.join(present)} of"
            " request.swarmResources replaces it"
        )
    if present and not any(environment[one].strip(" ,") for one in present):
        yield f"{', '.join(present)} of request.swarmResources is empty, which requests nothing"


def _ignored_legacy_image(
    environment: Mapping[str, str], settings: Settings, words: Vocabulary
) -> Iterator[str]:
    """Yield why a legacy image gets nothing."""
    name = words.devices_env
    if name in environment or not parse.is_legacy(environment, words):
        return
    if not settings.legacy_images:
        yield (
            f"{words.image_version_env} without {name}: a legacy image, which gets all GPUs only"
            " with request.legacyImages"
        )


def _ignored_mounts(spec: dict[str, Any], settings: Settings, words: Vocabulary) -> Iterator[str]:
    for path in mount_requests.names(spec.get("mounts"), words.mount_prefix, words.extra_mounts)[1]:
        if settings.accept_volume_mounts:
            yield f"the mount at {path} names no device: the form is cdi/VENDOR/CLASS/NAME"


def _ignored_variables(
    spec: dict[str, Any], environment: Mapping[str, str], words: Vocabulary
) -> Iterator[str]:
    name = words.devices_env
    value = environment.get(name)
    held = [entry for entry in parse.variables(spec) if entry.startswith(name + "=")]
    if len(held) > 1:
        yield f"{name} is set {len(held)} times: the last one applies, {held[-1]}"
    parts = [part.strip() for part in (value or "").split(",")]
    if words.normalized is not None and len(parts) > 1:
        return  # the vendor's own grammar refuses a contradiction, and the answer names it
    if "void" in parts:
        yield f"{name}={value} requests nothing: void means that the GPUs were already added"
    elif value is not None and not any(parts):
        yield f"{name} is empty, which requests nothing"
    elif value is not None and value.rstrip("/") == words.mount_prefix.rstrip("/"):
        yield (
            f"{name}={value} names no device: a device plugin with the list strategy volume-mounts"
            " sets it, and the mounts below that directory name the devices"
        )
    elif "all" in parts and len(parts) > 1:
        yield f"{name}={value}: all applies, the other values are ignored"


def _repeated_devices(devices: Iterable[dict[str, Any]]) -> Iterator[str]:
    for one in devices:
        if one["given_by"] != one["name"]:
            yield f"{one['name']} is {one['device']}, which {one['given_by']} already requests"
