# SPDX-License-Identifier: Apache-2.0
"""Docker's containers, as dockerd stores them below its data root.

Source: moby, daemon/container (config.v2.json), daemon/config (data-root).
"""

from __future__ import annotations

from typing import Any

from gpuhook.containers.stores import store_files, stored_container
from gpuhook.containers.stores.stored_container import StoredContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.containers.stores.store_files import StoreFiles

CONFIG, SNAP_CONFIG = "/etc/docker/daemon.json", "/var/snap/docker/current/config/daemon.json"
ROOT, SNAP_ROOT = "/var/lib/docker", "/var/snap/docker/common/var-lib-docker"
OF_A_USER = ".local/share/docker"  # below the home directory
_MOST = 10000  # containers
_ID = 64  # characters


def data_roots(files: StoreFiles) -> Iterator[str]:
    """Yield the data roots of the node's Docker, by its daemon.json, and of Docker's snap."""
    for path, usual in ((CONFIG, ROOT), (SNAP_CONFIG, SNAP_ROOT)):
        found = store_files.document(files.read(path)).get("data-root")
        yield found if isinstance(found, str) and found.startswith("/") else usual


def data_root_of(spec: dict[str, Any]) -> str:
    """Return the data root of a container by the mounts in its config.json, "" without such mounts.

    Docker mounts /etc/hostname from the container's directory, or from that of the container whose
    network it shares. So the data root is known also if an option of dockerd sets it.
    """
    mounts = spec.get("mounts")
    for one in mounts if isinstance(mounts, list) else []:
        source = one.get("source") if isinstance(one, dict) else None
        if isinstance(source, str) and source.startswith("/"):
            root, found, rest = source.rpartition("/containers/")
            if found and rest[_ID:] == "/hostname":
                return root
    return ""


def container(files: StoreFiles, root: str, identity: str) -> StoredContainer | None:
    """Return a container of the data root `root`, None if it has none of this id."""
    content = files.read(f"{root}/containers/{identity}/config.v2.json")
    if content is None:
        return None
    document = store_files.document(content)
    config, state = (store_files.table(document.get(key)) for key in ("Config", "State"))
    project, service = stored_container.labels(config.get("Labels"))
    name = document.get("Name")
    return StoredContainer(
        "docker",
        identity,
        stored_container.name(name.lstrip("/") if isinstance(name, str) else ""),
        stored_container.image(config.get("Image")),
        project,
        service,
        state.get("Running") is True,
    )


def containers(files: StoreFiles, root: str) -> Iterator[StoredContainer]:
    """Yield the containers of a data root."""
    for identity in files.names(f"{root}/containers")[:_MOST]:
        found = container(files, root, identity)
        if found is not None and stored_container.name(identity):
            yield found
