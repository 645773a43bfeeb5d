# SPDX-License-Identifier: Apache-2.0
"""The variables of an image or a container in the JSON output of tools.

The tools are `docker image inspect`, `podman image inspect`, `skopeo inspect`, `skopeo inspect
--config` (the image configuration of OCI's image specification) and `docker container inspect`.
"""

from __future__ import annotations

from typing import Any

from gpuhook.errors import fault
from gpuhook.explain import question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.explain.question import Question


_BY_GPUS = "--gpus requests {}, which Docker sets in NVIDIA_VISIBLE_DEVICES"
_BY_CDI = "Docker itself applies the CDI devices {}; this explains the same request by a variable"


def is_image(document: object) -> bool:
    """Return whether a document looks like that of an image or a container."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, dict) and any(key in first for key in ("Config", "config", "Env"))


def questions(document: object, where: str) -> list[Question]:
    """Return the question of each image or container in a document; GH1910 for another shape."""
    found = document if isinstance(document, list) else [document]
    return [_question(one, f"{where}[{n}]" if n else where) for n, one in enumerate(found)]


def _question(image: Any, where: str) -> Question:
    config = image.get("Config", image.get("config", image)) if isinstance(image, dict) else None
    env = config.get("Env") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(env, (list, type(None))):
        raise fault("GH1910", where=where, reason="it has no list of variables, Env")
    host = image.get("HostConfig")
    variables = [entry for entry in env or () if isinstance(entry, str)]
    if not isinstance(host, dict):
        note = "only an image: unprivileged, without other variables, annotations and volumes"
        return question.imagined(question.IMAGE, where, variables, [note])
    return _docker_question(where, variables, host)


def _docker_question(where: str, variables: list[str], host: dict[str, Any]) -> Question:
    """Return the question of a Docker container; --gpus sets NVIDIA_VISIBLE_DEVICES."""
    runtime = host.get("Runtime") or "the default runtime"
    notes = [f"its runtime is {runtime}; this explains gpuhook-runtime as its runtime"]
    for request in _items(host.get("DeviceRequests")):
        names = _device_names(request)
        if names:
            variables = [e for e in variables if not e.startswith("NVIDIA_VISIBLE_DEVICES=")]
            variables.append("NVIDIA_VISIBLE_DEVICES=" + names)
            notes.append((_BY_CDI if request.get("Driver") == "cdi" else _BY_GPUS).format(names))
    found = question.imagined(question.IMAGE, where, variables, notes)
    privileged = host.get("Privileged") is True
    return question.with_additions(found, {}, {}, (), privileged=privileged)


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _device_names(request: Any) -> str:
    """Return the devices of one of Docker's DeviceRequests, "" if it requests no GPUs."""
    if not isinstance(request, dict):
        return ""
    named = _items(request.get("DeviceIDs"))
    if named:
        return ",".join(str(name) for name in named)
    words = [word for group in _items(request.get("Capabilities")) for word in _items(group)]
    count = request.get("Count")
    if "gpu" not in words or not isinstance(count, int):
        return ""
    return "all" if count < 0 else ",".join(str(number) for number in range(min(count, 64)))
