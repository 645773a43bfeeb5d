# SPDX-License-Identifier: Apache-2.0
"""The container to explain: its config.json, real or imagined."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from gpuhook.explain.pods.pod_requests import Allocated, ClaimedDevices, PodRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.explain.pods.pod_requests import Objection
    from gpuhook.explain.pods.scheduling.placement import Placement
    from gpuhook.usage.injection_route import InjectedDevices

BUNDLE, CONFIG, CONTAINER = "bundle", "config", "container"
OPTIONS, IMAGE, POD = "options", "image", "pod"
_PRIVILEGED = "privileged: the engine adds all device nodes of the host, also those of all GPUs"
_CAPABILITY = "CAP_SYS_ADMIN"  # by which policy.py detects a privileged container


@dataclass(frozen=True, slots=True)
class Question:
    """A container to explain: `spec` is its config.json, as its engine makes it.

    `bundle` is its directory, "" for an imagined container. Without `has_root` its root file system
    is not available, and an empty one is used instead. `raw` is the text of config.json, if known.
    `notes` are the assumptions. `start_warnings` are the warnings from the container's start, by
    the ledger. `held` are the devices of a running container.
    """

    kind: str
    where: str
    spec: dict[str, Any]
    bundle: str = ""
    has_root: bool = False
    raw: bytes = b""
    notes: tuple[str, ...] = ()
    start_warnings: tuple[dict[str, str], ...] = ()
    held: InjectedDevices | None = None
    asked: PodRequest | None = None  # the container of a manifest
    allocated: Allocated | None = None  # by the device plugin, None on an unknown node
    placement: Placement | None = None  # of the pod on the node
    claimed: ClaimedDevices | None = None  # by its claims, None if they were not judged

    @property
    def plugin(self) -> Allocated:
        """The allocation by the device plugin, empty on an unknown node and outside of pods."""
        return self.allocated or Allocated()

    @property
    def by_claims(self) -> ClaimedDevices:
        """The devices by claims, empty if they are unknown."""
        return self.claimed or ClaimedDevices()

    @property
    def objections(self) -> tuple[Objection, ...]:
        """The objections to the request, the placement and the allocation of a pod's container."""
        own = self.asked.objections if self.asked else ()
        of_pod = self.placement.objections if self.placement else ()
        return (*own, *of_pod, *self.plugin.objections, *self.by_claims.objections)


def root_path(spec: dict[str, Any]) -> str:
    """Return the path of the root file system in a config.json, "" for none."""
    root = spec.get("root")
    path = root.get("path") if isinstance(root, dict) else None
    return path if isinstance(path, str) else ""


def imagined(kind: str, where: str, env: Iterable[str] = (), notes: Iterable[str] = ()) -> Question:
    """Return the question of an imagined container with these variables."""
    # What engines mount by default, as far as a grant depends on it.
    spec: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {"env": list(env), "capabilities": {"bounding": []}},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {},
    }
    return Question(kind, where, spec, notes=tuple(notes))


def with_additions(
    question: Question,
    env: Mapping[str, str],
    annotations: Mapping[str, str],
    mounts: Sequence[str],
    *,
    privileged: bool,
) -> Question:
    """Return the question with more requests, as by the options of `docker run`.

    `mounts` are container paths of mounts of /dev/null, by which volumes name devices. The
    variables `env` of a pod are those of its image: as_spec() adds them.
    """
    if not (env or annotations or mounts or privileged):
        return question
    spec = copy.deepcopy(question.spec)
    process = _object(spec, "process")
    if env and question.asked is None:
        entries = process.get("env")
        kept = [
            entry
            for entry in (entries if isinstance(entries, list) else ())
            if str(entry).partition("=")[0] not in env
        ]
        process["env"] = kept + [f"{name}={value}" for name, value in env.items()]
    if annotations:
        _object(spec, "annotations").update(annotations)
    if mounts:
        before = spec.get("mounts")
        spec["mounts"] = [*(before if isinstance(before, list) else ()), *map(_mount, mounts)]
    if privileged:
        capabilities = _object(process, "capabilities")
        bounding = capabilities.get("bounding")
        capabilities["bounding"] = [*(bounding if isinstance(bounding, list) else ()), _CAPABILITY]
    notes = (*question.notes, _PRIVILEGED) if privileged else question.notes
    return replace(question, spec=spec, raw=b"", notes=notes)


def _mount(path: str) -> dict[str, Any]:
    return {"destination": path, "type": "bind", "source": "/dev/null", "options": ["bind", "ro"]}


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        value = parent[key] = {}
    return value
