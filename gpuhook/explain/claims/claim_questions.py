# SPDX-License-Identifier: Apache-2.0
"""Claims as questions of explain: the pools of the node, and the devices of containers of pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.errors import GpuhookError, fault
from gpuhook.explain import manifest_questions
from gpuhook.explain.claims import claim_manifests
from gpuhook.explain.claims.claim_answers import claim_answers, claimed_devices
from gpuhook.explain.claims.claim_document import claim_documents
from gpuhook.explain.claims.rules.claim_rules import claim_objections
from gpuhook.explain.claims.rules.pod_claim_rules import pod_claim_objections
from gpuhook.explain.pods import pod_notes
from gpuhook.explain.pods.pod_requests import EPHEMERAL
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuhook.dra.pool.pool_device import Pool
    from gpuhook.explain.claims.claim_answers import ClaimAnswers
    from gpuhook.explain.claims.claim_objects import ClaimManifest, ClassObject
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.question import Question

_NODE = "this-node"  # the name of the pool, which no selector sees


def classes_of(path: str) -> tuple[ClassObject, ...]:
    """Return the classes in a file; raises GH1930, and GH2630 without any."""
    text = documents.read(path).decode("utf-8", "replace")
    found = claim_manifests.read(text, path).classes
    if not found:
        raise fault("GH2630", path=path)
    return found


def explained_claims(
    questions: list[Question],
    manifest: ClaimManifest,
    target: ExplainedNode,
    plugin_config: str | None,
    class_files: Sequence[str] = (),
) -> tuple[list[Question], list[dict[str, Any]] | None, ExplainedNode]:
    """Return the questions with the devices of claims, and the documents of the claims.

    The documents are None without a claim. The notes of the node have why devices are unknown.
    Raises GH1800 and GH1801 for the configuration, and what classes_of() raises.
    """
    further = [one for path in class_files for one in classes_of(path)]
    pools, notes = node_pools(target, plugin_config)
    found = claim_answers(manifest, pools, further)
    if not found.answers:
        return questions, None, target
    objections = list(claim_objections([manifest], further))
    done = list(_with_devices(questions, manifest, found))
    noted = replace(target, notes=(*target.notes, *notes))
    return done, claim_documents(found, objections), noted


def node_pools(target: ExplainedNode, plugin_config: str | None) -> tuple[list[Pool], list[str]]:
    """Return the pools that the driver would publish on a node, and why some are unknown."""
    from gpuhook.dra.pool.node_pool import node_pool  # it loads the device plugin
    from gpuhook.dra.pool.sharing_form import sharing_forms
    from gpuhook.explain.pods import plugin_offer
    from gpuhook.host.hot import state

    chosen = plugin_offer.configuration(plugin_config)
    parts, failures = manifest_questions.node_parts(target)
    host_root = state.host_root() if target.is_here else None
    pools, notes = [], [f"the devices of {failure}" for failure in failures]
    for part in parts:
        try:
            forms = sharing_forms(chosen, part.inventory)
            pools.append(node_pool(part, forms, _NODE, host_root))
        except GpuhookError as error:
            notes.append(f"no devices of {part.domain} for claims: {error.code}: {error.message}")
            continue
        notes += [*forms.warnings]
    notes += [f"no device of {pool.driver}: {pool.reason}" for pool in pools if pool.reason]
    return pools, notes


def _with_devices(
    questions: Iterable[Question], manifest: ClaimManifest, found: ClaimAnswers
) -> Iterator[Question]:
    """Yield the questions; those of pods with claims have the devices and the objections."""
    by_position = {one.group.position: one for one in found.answers if one.group.pod}
    last, index = -1, -1
    for one in questions:
        asked = one.asked
        if asked is None:
            yield one
            continue
        last, index = asked.position, index + 1 if asked.position == last else 0
        own = tuple(pod_claim_objections(manifest.pods[last], manifest)) if index == 0 else ()
        extended = [name for name in asked.limits if name in found.extended]
        names = (*asked.claims, *extended)
        gpus = {name: n for name, n in asked.gpus.items() if name not in extended}
        asked = replace(asked, claims=names, gpus=gpus, objections=(*asked.objections, *own))
        if extended:
            asked = replace(asked, notes=tuple(pod_notes.pod_notes(asked, [asked])))
        answer = by_position.get(last)
        claimed = None
        if answer is not None and names and asked.kind != EPHEMERAL:
            claimed = claimed_devices(answer, index, asked.claim_requests)
        yield replace(one, asked=asked, claimed=claimed)
