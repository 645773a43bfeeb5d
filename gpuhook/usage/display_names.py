# SPDX-License-Identifier: Apache-2.0
"""The names of containers, images and GPUs in tables: short, and different for different things."""

from __future__ import annotations

import re
from itertools import groupby

from gpuhook.request import replicas
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

NOTHING = "-"
_ENGINES = re.compile(r"[0-9a-f]{64}$")
_IMAGE_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})$")
_DIGEST = re.compile(r"@[a-z0-9]+:([0-9a-f]+)$")
_INDEX = re.compile(r"([a-z]+ )?(?:([0-9]{1,9}):)?([0-9]{1,9})$")  # vendor, parent, number
_SHORT = 12  # characters, as engines print them; commands accept the beginning of an id
_USUAL_IMAGE = 28  # characters, of cuda:12.4.1-base-ubuntu22.04
_LONGEST_IMAGE = 60
_UUID_GROUPS = 6  # with GPU or MIG


def short_id(identity: str) -> str:
    """Return the beginning of an id that an engine generated, or the whole of a chosen name.

    >>> short_id("4c1f0a9be27d" + 52 * "0"), short_id("gpu-trainer-green")
    ('4c1f0a9be27d', 'gpu-trainer-green')
    """
    return identity[:_SHORT] if _ENGINES.match(identity) else identity


def container_name(names: Mapping[str, Any], name: str | None) -> str:
    """Return POD/CONTAINER of `names`; outside of a pod, `name`, which is the engine's, or "-".

    Commands accept it as the name of a container.
    """
    if names.get("pod"):
        return "/".join(str(names[key]) for key in ("pod", "container") if names.get(key))
    return name or NOTHING


def short_image(image: str | None, most: int = _USUAL_IMAGE) -> str:
    """Return the repository and tag of an image, without registry and digest; "-" for None.

    A repository longer than `most` loses its first directories. An image without a tag has the
    beginning of its digest.

    >>> short_image("docker.io/library/busybox:1.36"), short_image("sha256:" + 64 * "a")
    ('busybox:1.36', 'aaaaaaaaaaaa')
    >>> short_image("nvcr.io/nvidia/pytorch:24.05-py3@sha256:" + 64 * "b")
    'nvidia/pytorch:24.05-py3'
    >>> short_image("docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04")
    'cuda:12.4.1-base-ubuntu22.04'
    >>> short_image("registry.example:5000/trainer@sha256:" + 64 * "c")
    'trainer@cccccccccccc'
    """
    if not image:
        return NOTHING
    identity = _IMAGE_ID.match(image)
    if identity:
        return identity[1][:_SHORT]
    digest = _DIGEST.search(image)
    name = image[: digest.start()] if digest else image
    registry, _, path = name.partition("/")
    if path and (registry == "localhost" or "." in registry or ":" in registry):
        name = path.removeprefix("library/")
    if digest and ":" not in name:
        name += f"@{digest[1][:_SHORT]}"
    while len(name) > most and "/" in name:
        name = name.partition("/")[2]
    return name if len(name) <= _LONGEST_IMAGE else name[: _LONGEST_IMAGE - 3] + "..."


def model(gpu: Mapping[str, Any]) -> str:
    """Return the profile of a part, or the model and mode of a GPU, and if it is lost; or ""."""
    name = gpu["name"] or ""
    for vendor in vendors():
        name = name.removeprefix(f"{vendor.title} ")
    words = (name, gpu["profile"]) if gpu.get("split") else (gpu["profile"] or name,)
    return ", ".join(filter(None, (*words, "lost" if gpu["lost"] else "")))


class GpuNames:
    """The names of GPUs and their parts: "0,1 (H100 80GB HBM3)", "0:1 (1g.10gb)", "amd 0:3 (CPX)".

    A device that is not known has the name that the container has for it. Of a UUID, that is the
    beginning that no other UUID has.
    """

    def __init__(self, gpus: Iterable[Mapping[str, Any]], others: Iterable[str] = ()) -> None:
        """Take devices as `gpuhook ps` lists them, and the names that will be asked for."""
        listed = list(gpus)
        self._known = {gpu["index"]: gpu for gpu in listed}
        self._known |= {gpu["gpu"]: gpu for gpu in listed if gpu["gpu"]}
        self._names: set[str] = {*self._known, *map(_device, others)}

    def listed(self, names: Iterable[str]) -> str:
        """Return the names of devices in one cell, those of one model together; "-" for none."""
        groups: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
        for name in dict.fromkeys(map(_device, names)):
            gpu = self._known.get(name)
            index = _INDEX.match(gpu["index"]) if gpu else None
            if gpu is None or index is None:
                groups[self._short(name), None] = []
            else:
                place = (int(index[2] or -1), int(index[3]))
                groups.setdefault((model(gpu), index[1] or ""), []).append(place)
        cells = (_group(words, vendor, places) for (words, vendor), places in groups.items())
        return ", ".join(cells) or NOTHING

    def _short(self, name: str) -> str:
        groups = name.split("-")
        if not name.startswith(("GPU-", "MIG-")) or len(groups) != _UUID_GROUPS:
            return name
        beginnings = ("-".join(groups[:count]) for count in range(2, _UUID_GROUPS))
        return next((one for one in beginnings if self._is_unique(one)), name)

    def _is_unique(self, beginning: str) -> bool:
        return sum(name.startswith(beginning) for name in self._names) < 2


def _device(name: str) -> str:
    """Return the device of a CDI name or a replica id, or `name`."""
    device = name.rpartition("=")[2]
    return replicas.device_of(device) or device


def _group(words: str, vendor: str | None, places: Sequence[tuple[int, int]]) -> str:
    if vendor is None:
        return words
    indices = vendor + _ranges(places)
    return f"{indices} ({words})" if words else indices


def _ranges(places: Iterable[tuple[int, int]]) -> str:
    """Return indices in order, three or more in a row as a range: "0,1", "0-7", "0:0-6".

    A place is (parent or -1, number).
    """
    words: list[str] = []
    for (parent, _), run in groupby(
        enumerate(sorted(set(places))), lambda one: (one[1][0], one[1][1] - one[0])
    ):
        numbers = [number for _, (_, number) in run]
        prefix = "" if parent < 0 else f"{parent}:"
        if len(numbers) > 2:
            words.append(f"{prefix}{numbers[0]}-{numbers[-1]}")
        else:
            words += [f"{prefix}{number}" for number in numbers]
    return ",".join(words)
