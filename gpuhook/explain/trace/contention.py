# SPDX-License-Identifier: Apache-2.0
"""The resources of a node for which the explained pods compete.

Each pod is explained alone on the node. Together, they get the units of the node in their order:
a pod for which too few remain stays Pending.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpuhook.explain.trace import outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.explain.simulate import SimulatedAnswer


def contention(
    answers: Sequence[SimulatedAnswer], ends: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return each resource of which the pods request more units than the node offers.

    Each has the `resource`, the `requested` and the `offered` units, and the `pending` containers.
    Pods that do not start alone are not counted. `ends` are the outcomes of the answers.
    """
    needed: dict[int, dict[str, int]] = {}
    offered: dict[str, int] = {}
    members: dict[int, list[PodRequest]] = defaultdict(list)
    for answer, end in zip(answers, ends, strict=True):
        asked = answer.question.asked
        if asked is None or end["result"] in outcome.NOT_STARTED:
            continue
        members[asked.position].append(asked)
        pod = needed.setdefault(asked.position, {})
        for one in answer.question.plugin.answers:
            pod[one.resource] = one.taken  # of this container and those before
            offered[one.resource] = one.offered
    pending = _pending(needed, offered)
    found = []
    for name, count in offered.items():
        requested = sum(pod.get(name, 0) for pod in needed.values())
        if requested > count:
            waiting = [one.title for pod in pending.get(name, ()) for one in members[pod]]
            found.append(
                {"resource": name, "requested": requested, "offered": count, "pending": waiting}
            )
    return found


def _pending(
    needed: Mapping[int, Mapping[str, int]], offered: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the pods that stay Pending, each at the first resource with too few units."""
    free = dict(offered)
    pending: dict[str, list[int]] = defaultdict(list)
    for position, pod in needed.items():
        lacking = next((name for name, count in pod.items() if count > free[name]), None)
        if lacking is not None:
            pending[lacking].append(position)
            continue
        for name, count in pod.items():
            free[name] -= count
    return pending
