# SPDX-License-Identifier: Apache-2.0
"""What is asked about: a container that is, or could be, as its config.json would be."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.explain.pods.pod_answers import Allocated
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.usage.injection_route import InjectedDevices

BUNDLE, CONFIG, CONTAINER = "bundle", "config", "container"
OPTIONS, IMAGE, POD = "options", "image", "pod"
_PRIVILEGED = "privileged: its engine gives it all device nodes of the host, those of all GPUs too"
_CAPABILITY = "CAP_SYS_ADMIN"  # whose presence makes a container privileged, to policy.py


@dataclass(frozen=True, slots=True)
class Question:
    """A container in question: `spec` is the object of its config.json, as its engine makes it.

    `bundle` is its directory, "" for one that is only thought of; without `has_root` its root file
    system is not here, and an empty one stands for it. `raw` is the text of config.json where
    that is known. `notes` say what was supposed. `start_warnings` are those that gpuhook reported
    when the container started, as the ledger has them. `held` is what a running container has.
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
    asked: PodRequest | None = None  # the container of a manifest that it is
    allocated: Allocated | None = None  # what a device plugin gives to that


def imagined(kind: str, where: str, env: Iterable[str] = (), notes: Iterable[str] = ()) -> Question:
    """Return the question of a container with these variables of which there is no config.json."""
    # What engines mount where nothing else is said, as far as a grant depends on it.
    spec: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {"env": list(env), "capabilities": {"bounding": []}},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {},
    }
    return Question(kind, where, spec, notes=tuple(notes))


def with_options(
    question: Question,
    *,
    env: Mapping[str, str],
    annotations: Mapping[str, str],
    mounts: Iterable[str] = (),
    privileged: bool = False,
) -> Question:
    """Return the question with more asked for, as by the options of `docker run`.

    `mounts` are container paths of mounts of /dev/null, which is how volumes name devices.
    """
    spec = copy.deepcopy(question.spec)
    process = _object(spec, "process")
    held = process.get("env") if isinstance(process.get("env"), list) else []
    entries = [entry for entry in held or () if str(entry).partition("=")[0] not in env]
    added = [f"{name}={value}" for name, value in env.items()]
    if added:
        process["env"] = entries + added
    if annotations:
        _object(spec, "annotations").update(annotations)
    places = [
        {"destination": path, "type": "bind", "source": "/dev/null", "options": ["bind", "ro"]}
        for path in mounts
    ]
    if places:
        before = spec.get("mounts")
        spec["mounts"] = [*(before if isinstance(before, list) else ()), *places]
    if privileged:
        capabilities = _object(process, "capabilities")
        bounding = capabilities.get("bounding")
        found = bounding if isinstance(bounding, list) else []
        capabilities["bounding"] = [*found, _CAPABILITY]
    notes = (*question.notes, _PRIVILEGED) if privileged else question.notes
    return replace(question, spec=spec, raw=b"", notes=notes)


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        value = parent[key] = {}
    return value
