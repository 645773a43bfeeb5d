# SPDX-License-Identifier: Apache-2.0
"""The names of containers, and their engines and images."""

from __future__ import annotations

from gpuhook.containers.hot import ledger
from gpuhook.containers.stores import annotation_names, docker_store, libpod, store_files
from gpuhook.containers.stores.store_files import OwnFiles
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.containers.stores.stored_container import StoredContainer
    from gpuhook.containers.warm.runtime_state import Found

DOCKER, PODMAN = "docker", "podman"
# The engine of a container, by a part of the paths of its bundle or state.
_ENGINES = (
    ("/runtime-", DOCKER),
    ("/moby/", DOCKER),
    ("/containerd/runc/", "containerd"),
    ("/io.containerd.", "containerd"),
)
_MANAGERS = {"libpod": PODMAN, "cri-o": "cri-o"}  # the annotation io.container.manager


class ContainerNames:
    """The names in the stores of engines. A store is read when it is needed, and once."""

    def __init__(self) -> None:
        self._files = OwnFiles()
        self._data_roots: dict[str, None] = {}
        self._libpod: dict[str, dict[str, StoredContainer]] = {}
        self._of_users: dict[int, dict[str, StoredContainer]] = {}

    def identify(self, found: Found) -> None:
        """Set the engine, the name, the image and the pod of a container, as far as known."""
        spec = _config(found)
        annotations = store_files.table(spec.get("annotations"))
        found.pod = ledger.pod_of(annotations)
        found.engine = _engine(found, annotations)
        stored = self._stored(found, spec)
        found.name = stored.name if stored else annotation_names.name(annotations, found.pod)
        found.image = stored.image if stored else annotation_names.image(annotations)

    def _stored(self, found: Found, spec: dict[str, Any]) -> StoredContainer | None:
        if found.engine == DOCKER:
            return self._of_docker(found.id, docker_store.data_root_of(spec))
        storage = libpod.storage_of(found.bundle, found.id) if found.engine == PODMAN else ""
        return self._of_libpod(storage).get(found.id) if storage else None

    def _of_docker(self, identity: str, root: str) -> StoredContainer | None:
        if not self._data_roots:
            self._data_roots = dict.fromkeys(docker_store.data_roots(self._files))
        if root:
            self._data_roots[root] = None
        for place in (root,) if root else tuple(self._data_roots):
            stored = docker_store.container(self._files, place, identity)
            if stored is not None:
                return stored
        return None

    def _of_libpod(self, storage: str) -> dict[str, StoredContainer]:
        if storage not in self._libpod:
            found = libpod.containers(self._files, storage)
            self._libpod[storage] = {one.id: one for one in found}
        return self._libpod[storage]


def _config(found: Found) -> dict[str, Any]:
    try:
        return found.config()
    except (OSError, GpuhookError):
        return {}  # a bundle may be gone while its container runs


def _engine(found: Found, annotations: dict[str, Any]) -> str:
    """Return the engine that created a container, "" if nothing shows it."""
    manager = annotations.get("io.container.manager")
    if isinstance(manager, str) and manager in _MANAGERS:
        return _MANAGERS[manager]
    paths = f"{found.state_root}/ {found.bundle}/"
    for part, engine in _ENGINES:
        if part in paths:
            return engine
    return ""
