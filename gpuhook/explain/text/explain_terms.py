# SPDX-License-Identifier: Apache-2.0
"""How a trace of `gpuhook explain` names GPUs, counts and lists."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN = 6  # of a list, where the whole of it is a line too long
_MOST_GPUS = 16


def gpus_of(gpus: Sequence[dict[str, Any]]) -> str:
    """Return what people call some GPUs: "GPU 0 (Tesla T4)", "8 GPUs: 0, 1, ... (NVIDIA H100)".

    Those of a model are told together.
    """
    by_model: dict[str | None, list[dict[str, Any]]] = {}
    for one in gpus:
        by_model.setdefault(one["model"], []).append(one)
    return " and ".join(_alike(found) for found in by_model.values()) or "GPUs"


def _alike(gpus: Sequence[dict[str, Any]]) -> str:
    if len(gpus) == 1:
        return called(gpus[0])
    kind = "MIG instance" if all(":" in (one["index"] or "") for one in gpus) else "GPU"
    names = [one["index"] or one["gpu"] for one in gpus]
    model = f" ({gpus[0]['model']})" if gpus[0]["model"] else ""
    return f"{counted(len(gpus), kind)}: {listed(names, _MOST_GPUS)}{model}"


def called(gpu: dict[str, Any]) -> str:
    """Return what people call a GPU or an instance; its UUID or name in the spec where unknown."""
    if gpu["index"] is None:
        name = str(gpu["gpu"])
        return f"GPU {name}" if name[:1].isdigit() else name
    return f"GPU {gpu['index']}" + (f" ({gpu['model']})" if gpu["model"] else "")


def listed(found: Iterable[str], most: int = SHOWN) -> str:
    """Return a list on a line, the first `most` and how many there are."""
    names = list(dict.fromkeys(found))
    more = f", ... {len(names)} in all" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, what: str, several: str = "") -> str:
    """Return a number of things: "1 mount", "22 mounts"."""
    return f"{count} {what if count == 1 else several or what + 's'}"
