# SPDX-License-Identifier: Apache-2.0
"""The comparison of one running container: its request, what added its GPUs, and the items."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.compare import expected_injection, original_request
from gpuhook.compare.items import (
    env_items,
    injector,
    loader_items,
    node_items,
    node_specs,
    surplus_items,
)
from gpuhook.compare.items.compare_item import (
    ACCESS,
    NODE,
    REQUEST,
    SAME,
    THERE,
    VARIABLE,
    compare_words,
    counts,
)
from gpuhook.compare.items.mount_items import ContainerMounts
from gpuhook.inspect import inspection
from gpuhook.request import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.compare.expected_injection import ExpectedInjection, PlanNode
    from gpuhook.compare.items.compare_item import Item
    from gpuhook.compare.original_request import Before
    from gpuhook.request.parse import Vocabulary
    from gpuhook.target.running_container import Target

SCHEMA = "gpuhook/compare/v1"

_LIVE_ROUTES = ("prestart", "attach")  # in the ledger


def compare_container(target: Target, plan_node: PlanNode) -> dict[str, Any]:
    """Return the comparison of a container, {} if it has no GPU and requests none.

    Changes nothing and runs nothing in the container. Raises OSError, and GH1732 if the container
    ends in the meantime.
    """
    facts = inspection.inspect_container(target.held, target.found, target.spec, target.entry)
    paths = [node["path"] for node in facts["nodes"]]
    targets = [mount["path"] for mount in facts["mounts"]]
    by = injector.injector_of(target.spec, target.entry, paths, targets, plan_node.specs)
    before = original_request.before(target.spec)
    is_given = bool(targets) or (
        by != injector.NOBODY and not node_items.allows_everything(target.spec)
    )
    expected = expected_injection.expected_injection(
        plan_node, before.spec, paths, is_given=is_given
    )
    if by == injector.NOBODY and not (expected.names or expected.refusal):
        return {}
    if expected.refusal is not None:
        items = [_refused(by, expected, plan_node.context.node.vocabulary)]
    else:
        found = _items(target, facts, before, by, expected)
        items = [_as_changed(one, target) for one in found]
    applied = node_specs.applied(target.spec, paths, plan_node.specs)
    if applied is not None and applied.by == by:
        expected.notes += node_specs.stale_numbers(applied, expected.edits)
    return _document(facts["container"], by, expected, items)


def _document(
    container: dict[str, Any], by: str, expected: ExpectedInjection, items: list[Item]
) -> dict[str, Any]:
    """Return the comparison as JSON has it; `container` is that of an inspection."""
    return {
        "container": container["id"],
        "pod": container["pod"],
        "namespace": container["namespace"],
        "name": container["name"],
        "image": container["image"],
        "engine": container["engine"],
        "runtime": container["runtime"],
        "givenBy": by,
        "request": {
            "where": expected.where or None,
            "names": expected.names,
            "capabilities": sorted(expected.capabilities),
        },
        "counts": counts(items),
        "items": [one.document() for one in items],
        "notes": expected.notes,
    }


def _as_changed(one: Item, target: Target) -> Item:
    """Return an item with the reason if attach, detach or the prestart hook caused it."""
    if one.verdict == SAME or one.reason:
        return one
    if one.kind == VARIABLE and target.entry.get("route") in _LIVE_ROUTES:
        return replace(one, reason="a variable cannot be added to an existing container")
    if one.kind not in (NODE, ACCESS):
        return one
    if one.name in target.withdrawn:
        return replace(one, reason="`gpuhook detach` removed it")
    given = {node["path"] for node in target.given.get("deviceNodes") or ()}
    if one.verdict == THERE and one.name in given:
        return replace(one, reason="`gpuhook attach` added it")
    return one


def _items(
    target: Target, facts: dict[str, Any], before: Before, by: str, expected: ExpectedInjection
) -> list[Item]:
    held, spec = target.held, target.spec
    mounts = ContainerMounts(held, spec, facts["mounts"], by)
    side = loader_items.Side(held, by, expected)
    env = parse.variables(spec) if spec else held.process.environment()
    return [
        *node_items.items(held, spec, facts["nodes"], by, expected),
        *mounts.items(expected),
        *loader_items.items(side, expected.todo, mounts.bad, mounts.moved),
        *surplus_items.items(side, spec, by, expected, mounts),
        *env_items.variables(env, before.added, by, expected),
        *env_items.groups(held, by, expected),
        *env_items.effects(held, by, expected),
    ]


def _refused(by: str, expected: ExpectedInjection, words: Vocabulary) -> Item:
    error = expected.refusal
    there = "started" if by == injector.NOBODY else f"started, GPUs added by {by}"
    ours = f"refused: {error.code}: {error.message}" if error else ""
    return compare_words(REQUEST, expected.where or words.devices_env, there, ours)
