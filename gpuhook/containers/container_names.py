# SPDX-License-Identifier: Apache-2.0
"""The names of containers, and their engines and images."""

from __future__ import annotations

import os
from functools import cached_property

from gpuhook.containers import rootless_state
from gpuhook.containers.hot import ledger
from gpuhook.containers.stores import (
    annotation_names,
    containerd_store,
    docker_store,
    libpod,
    store_files,
)
from gpuhook.containers.stores.store_files import OwnFiles
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.containers.stores.stored_container import StoredContainer

DOCKER, PODMAN, CONTAINERD = "docker", "podman", "containerd"
# The engine of a container, by a part of the paths of its bundle or state.
_ENGINES = (
    ("/runtime-", DOCKER),
    ("/moby/", DOCKER),
    ("/containerd/runc/", CONTAINERD),
    ("/io.containerd.", CONTAINERD),
)
_MANAGERS = {"libpod": PODMAN, "cri-o": "cri-o"}  # the annotation io.container.manager


class ContainerNames:
    """The names in the stores of engines. A store is read when it is needed, and once."""

    def __init__(self) -> None:
        self.trouble: dict[str, str] = {}  # the reason, by a path in stores of other users
        self._files = OwnFiles()
        self._libpod: dict[str, dict[str, StoredContainer]] = {}
        self._containerd: dict[str, dict[tuple[str, str], StoredContainer]] = {}

    def identify(self, found: Found) -> None:
        """Set the engine, the name, the image and the pod of a container, as far as known."""
        spec = _config(found)
        annotations = store_files.table(spec.get("annotations"))
        found.pod = ledger.pod_of(annotations)
        found.engine = _engine(found, annotations)
        stored = self._stored(found, spec)
        found.engine = stored.engine if stored else found.engine
        by_annotation = annotation_names.name(annotations, found.pod)
        found.name = (stored.name if stored else "") or by_annotation
        found.image = stored.image if stored else annotation_names.image(annotations)

    def stored(self) -> Iterator[StoredContainer]:
        """Yield the containers in the stores of root and this user, and of identified containers.

        The latter can be in places that only an option of their engine names.
        """
        for root in tuple(self._data_roots):
            yield from docker_store.containers(self._files, root)
        for storage in _real((*_places(libpod.STORAGE, libpod.OF_A_USER), *self._libpod)):
            yield from self._of_libpod(storage).values()
        for root in _real((containerd_store.ROOT, *self._containerd)):
            yield from self._of_containerd(root).values()

    def of_users(self) -> Iterator[StoredContainer]:
        """Yield the containers in the stores of other users, for the host's root."""
        for known in self._of_users.values():
            yield from known.values()

    def _stored(self, found: Found, spec: dict[str, Any]) -> StoredContainer | None:
        if not found.is_ours:
            return self._of_users.get(found.owner, {}).get(found.id)
        if found.engine == DOCKER:
            return self._of_docker(found.id, docker_store.data_root_of(spec))
        if found.engine == CONTAINERD and not found.pod:
            key = os.path.basename(os.path.dirname(found.bundle)), found.id
            return self._of_containerd(containerd_store.root_of(found.bundle)).get(key)
        storage = libpod.storage_of(found.bundle, found.id) if found.engine == PODMAN else ""
        return self._of_libpod(storage).get(found.id) if storage else None

    @cached_property
    def _data_roots(self) -> dict[str, None]:
        roots = docker_store.data_roots(self._files)
        return _real((*roots, *_places("", docker_store.OF_A_USER)))

    def _of_docker(self, identity: str, root: str) -> StoredContainer | None:
        if root:
            found = docker_store.container(self._files, root, identity)
            if found is not None:
                self._data_roots.update(_real([root]))
                return found
        others = (docker_store.container(self._files, one, identity) for one in self._data_roots)
        return next(filter(None, others), None)

    def _of_libpod(self, storage: str) -> dict[str, StoredContainer]:
        if storage not in self._libpod:
            found = libpod.containers(self._files, storage)
            self._libpod[storage] = {one.id: one for one in found}
        return self._libpod[storage]

    def _of_containerd(self, root: str) -> dict[tuple[str, str], StoredContainer]:
        if root not in self._containerd:
            found = containerd_store.containers(self._files, root)
            self._containerd[root] = {(namespace, one.id): one for namespace, one in found}
        return self._containerd[root]

    @cached_property
    def _of_users(self) -> dict[int, dict[str, StoredContainer]]:
        found: dict[int, dict[str, StoredContainer]] = {}
        containers, trouble = rootless_state.stored()
        self.trouble.update(trouble)
        for one in containers:
            found.setdefault(one.user, {})[one.id] = one
        return found


def stopped(stored: StoredContainer) -> Found:
    """Return a stored container that no runtime has a state of."""
    found = Found(stored.id)
    found.engine, found.name, found.image = stored.engine, stored.name, stored.image
    found.owner = stored.user or found.owner
    return found


def _places(of_root: str, of_a_user: str) -> tuple[str, ...]:
    """Return the places of the stores of root and of this user, if the user is another one."""
    own = os.path.expanduser(f"~/{of_a_user}") if state.is_rootless() else ""
    return tuple(filter(None, (of_root, own)))


def _real(roots: Iterable[str]) -> dict[str, None]:
    """Return each store once: /var/lib/docker may be a link to the place that Docker names."""
    return dict.fromkeys(map(os.path.realpath, roots))


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
