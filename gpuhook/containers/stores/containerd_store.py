# SPDX-License-Identifier: Apache-2.0
"""The images and labels of containerd's containers, of ctr and nerdctl, as containerd stores them.

Source: containerd, core/metadata/buckets.go (v1/NAMESPACE/containers/ID), core/runtime/v2/bundle.go
(the link `work`); nerdctl, pkg/labels.
"""

from __future__ import annotations

import os
from contextlib import suppress

from gpuhook.containers.stores import bolt, stored_container
from gpuhook.containers.stores.bolt import BrokenBoltError, Bucket
from gpuhook.containers.stores.stored_container import StoredContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.containers.stores.store_files import StoreFiles

ROOT = "/var/lib/containerd"
_DATABASE = "io.containerd.metadata.v1.bolt/meta.db"
_NAME = b"nerdctl/name"
_OTHERS = (b"moby", b"k8s.io")  # namespaces of Docker and of CRI, which have names elsewhere
_READS = 3  # containerd may write the database meanwhile
_BELOW_ROOT = 3  # io.containerd.runtime.v2.task/NAMESPACE/ID


def root_of(bundle: str) -> str:
    """Return the root of the containerd that made a bundle, by its link `work`; else the usual."""
    try:
        place = os.readlink(os.path.join(bundle, "work"))
    except OSError:
        return ROOT
    parts = place.rsplit("/", _BELOW_ROOT)
    return parts[0] if place.startswith("/") and len(parts) == _BELOW_ROOT + 1 else ROOT


def containers(files: StoreFiles, root: str) -> Iterator[tuple[str, StoredContainer]]:
    """Yield the containers of ctr and nerdctl with their namespaces."""
    for _ in range(_READS):
        content = files.read(f"{root}/{_DATABASE}")
        with suppress(BrokenBoltError):  # a write in progress, or another version
            yield from list(_of_database(content)) if content else ()
            return


def _of_database(content: bytes) -> Iterator[tuple[str, StoredContainer]]:
    namespaces = bolt.root(content).bucket(b"v1")
    for name, namespace in namespaces.entries() if namespaces else ():
        if isinstance(namespace, Bucket) and name not in _OTHERS:
            yield from _of_namespace(_text(name), namespace)


def _of_namespace(name: str, namespace: Bucket) -> Iterator[tuple[str, StoredContainer]]:
    below = namespace.bucket(b"containers")
    for identity, container in below.entries() if below else ():
        if isinstance(container, Bucket):
            yield name, _container(_text(identity), dict(container.entries()))


def _container(identity: str, facts: dict[bytes, bytes | Bucket]) -> StoredContainer:
    labels = facts.get(b"labels")
    known = dict(labels.entries()) if isinstance(labels, Bucket) else {}
    project, service = stored_container.labels({_text(k): _text(v) for k, v in known.items()})
    return StoredContainer(
        "containerd",
        stored_container.name(identity),
        stored_container.name(_text(known.get(_NAME))),
        stored_container.image(_text(facts.get(b"image"))),
        project,
        service,
    )


def _text(value: bytes | Bucket | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
