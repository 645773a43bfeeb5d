# SPDX-License-Identifier: Apache-2.0
"""The NRI plugin's speed and size: a real process next to the runtime's end of the socket.

Times are the runtime's, for a CreateContainer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tests.bench import process_usage
from tests.bench.figure import Figure, milliseconds, percentiles
from tests.contract.installation import installation
from tests.nri.fake_runtime import FakePlugin, FakeRuntime, container, pod
from tests.nri.nri_plugin import nri_plugin

_CREATES = 1000
_CONTAINERS = 50  # as many as a node has at once
_MODES = {"devices one by one": "1.7.24~ds1", "CDI names": "v2.1.4"}
_REQUESTS = {"without a request": "", "one GPU": "2", "all GPUs": "all"}


def figures(place: Path) -> Iterator[Figure]:
    """Measure all, with files below `place`."""
    node = installation(place).apart(place / "apart", nri={"namespaces": ["default"]})
    for number, (mode, version) in enumerate(_MODES.items()):
        runtime = FakeRuntime(place / f"nri-{number}/nri.sock")
        options = ("--plugin-directory", str(place))
        with nri_plugin(node, runtime.path, *options) as plugin:
            link = runtime.accept()
            link.start("containerd", version)
            for what, value in _REQUESTS.items():
                yield from _creates(link, f"{what}, {mode}", value)
            resident = process_usage.resident(plugin.process.pid)
            yield Figure(f"resident memory after that, {mode}", resident, "MB")
        runtime.close()


def _creates(link: FakePlugin, what: str, value: str) -> Iterator[Figure]:
    one = container([f"NVIDIA_VISIBLE_DEVICES={value}"] if value else [])
    names = itertools.cycle(range(_CONTAINERS))

    def create() -> None:
        one.id = f"c{next(names)}"
        if link.create(pod(), one).HasField("adjust") != bool(value):
            raise RuntimeError(f"{what}: wrong answer")

    yield from percentiles(what, milliseconds(_CREATES, create))
