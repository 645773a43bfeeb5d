# SPDX-License-Identifier: Apache-2.0
"""Who holds GPUs in people's terms, of entries of the ledger or in the ledger's form."""

from __future__ import annotations

from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.memory_limits import guard_state
from gpuhook.usage import container_sharing, ledger_text
from gpuhook.vendors.nvidia.gpu import sharing_isolation as isolation_words
from gpuhook.vendors.nvidia.hot import node_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuhook.memory_limits.guard_state import Watched


def holders_of(
    entries: Iterable[dict[str, Any]], by_node: dict[str, str], *, is_judged: bool
) -> list[dict[str, Any]]:
    """Return the containers that hold GPUs; with how these are shared, where that `is_judged`.

    `by_node` has the UUID of each device by its own device node. Device plugins share no GPU.
    """
    turns, watched = _turns(), guard_state.watched()
    told = [(entry, ledger_text.entry_document(entry, by_node)) for entry in entries]
    kept = [(entry, one) for entry, one in told if one["gpus"] or not one["withdrawn"]]
    for entry, one in kept:
        one["device_plugin"] = entry["device_plugin"]
    holders = container_sharing.counted(one["gpus"] for _, one in kept if not one["device_plugin"])
    for entry, one in kept:
        one["turns"] = {gpu: turns[gpu] for gpu in one["gpus"] if turns.get(gpu)}
        one["memory"] = _with_guard(one["memory"], guard_state.guarded_devices(one["id"], watched))
        if is_judged:
            one["sharing"] = container_sharing.container_sharing(
                entry, one["gpus"], holders, one["memory"]
            )
    return [one for _, one in kept]


def _with_guard(
    memory: list[dict[str, Any]], watched: Mapping[str, Watched]
) -> list[dict[str, Any]]:
    """Return the limits of the ledger, with what the guard does about them, and those it knows."""
    known = {told["gpu"] for told in memory}
    found = [{**told, "guard": guard_state.document(watched.get(told["gpu"]))} for told in memory]
    found += [
        {
            "gpu": gpu,
            "limit": one.limit,
            "request": 0,
            "by": isolation_words.BY_NOBODY,
            "trouble": "",
            "guard": guard_state.document(one),
        }
        for gpu, one in watched.items()
        if gpu not in known
    ]
    for told in found:
        if told["by"] == isolation_words.BY_NOBODY:
            told["by"] = guard_state.by(watched.get(told["gpu"]))
    return found


def _turns() -> dict[str, dict[str, str]]:
    """Return time slice and compute mode of each GPU, by UUID, as far as they are known.

    They are what the device plugin has set of them; else what generate-cdi saw.
    """
    found = node_json.turns()
    for (gpu, kind), note in saved_policies.read(recovery_evidence.read().boot).items():
        found.setdefault(gpu, {})[kind.replace(" ", "_")] = note.ours
    return found
