# SPDX-License-Identifier: Apache-2.0
"""The ledger: which container holds which devices, one small JSON file for each container.

The files are below /run/gpuhook/containers. They name pods, so only their owner can read them.

The runtime replaces the wrapper, so the wrapper knows neither the container's pid nor its end: an
entry names the runtime's state root. Until the runtime has written its state, the process that
creates the container represents it; an entry of the hook names the container's process. Ids are
unique per state root only.

A container has exited if its state root exists and does not contain it. Only writers remove the
entries of such containers: a reader can be in a pod that has the ledger mounted and no state root.

`expected` is a time of the clock CLOCK_MONOTONIC, in seconds: NRI's plugin enters a container that
no process creates yet. The entry applies until then, or to the process that is entered later. The
clock starts with the machine: a time that is more than CREATION away belongs to another boot.

`identities` has by path which device a node is of, if the vendor's nodes can change devices.

A container with devices of claims (Dynamic Resource Allocation) has `claims`: an object for each
device, with its "namespace", "claim", "request", "device", and its "share" if the device is shared.

If memory is limited, `memory` is a list with an object for each device:

    device     as in the grant: a UUID, a PCI address, the name of a partition
    hard, soft bytes: the grant, narrowed by the container's env; or later changes
    asked      whether the pod itself requested the limit
    by         what enforces it, set and read back: "driver", or "kernel" for the controller dmem;
               "": only the device plugin's guard may watch it
    trouble    why the driver does not enforce it, as a sentence, else ""; if the driver enforces
               the grant, why not the limit that the container has set itself
    cgroups    the directories for which the driver has the limit
    granted    if `gpuhook limits` has changed it: {"hard", "soft", "asked"} of the grant, null for
               none. A record without it is the grant; a lifted one has no limit
    guarantee  if the grant's soft limit was left out: why; `soft` is 0 then, `granted` has it

`warnings` is a list of {"code", "message"} of the container's start. An entry whose `route` is ""
has nothing else: its container requested a GPU and started without one.

Changes of a running container are recorded in addition to those of its config.json:

    init       [pid, started] of the container's first process; the rest applies while it lives
    live       what the prestart hook or `attach` provided: {"edits", the ContainerEdits; "jobs",
               the arguments of `gpuhook-hook apply` for its links; "made", what was created;
               "coming", what an unfinished attach was about to create}
    whole      the devices that `attach` provided as such, not by a replica
    withdrawn  the nodes that `detach` removed

A restart under the same id has another first process: readers then drop these keys.
"""

from __future__ import annotations

import errno
import os
import time
from binascii import crc32

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson, files, procfs, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SCHEMA = "gpuhook/ledger/v1"
CREATION = 30.0  # seconds in which a runtime starts a container that it has created
_SWEEP_ABOVE, _SWEEP_EACH = 512, 64  # entries
_MODE, _BY_OTHERS = 0o700, 0o077  # of the directory
_MAX_BYTES = 1 << 20  # of an entry: a larger one is not read
_LIVE = ("init", "live", "whole", "withdrawn")
_MAX_NAME = 200  # of an id in a file's name: with root, suffix and temporary prefix below 255
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.")

# Annotations with the names of pod and container: containerd's CRI, then CRI-O and podman.
_POD_KEYS = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
_NAMESPACE_KEYS = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
_CONTAINER_KEYS = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
_CRIO = "io.kubernetes.cri-o.Annotations"  # CRI-O writes it over any annotation of the pod


def directory() -> str:
    """Return the directory of the entries."""
    return os.path.join(state.directory(), "containers")


def is_id(text: str) -> bool:
    """Return whether `text` is a container id as runc and crun take it."""
    return (
        bool(text)
        and text not in (".", "..")
        and len(text) <= 255
        and (_ID_CHARACTERS.issuperset(text))
    )


def is_of_crio(annotations: object) -> bool:
    """Return whether CRI-O wrote these annotations."""
    return isinstance(annotations, dict) and _CRIO in annotations


def pod_of(annotations: object) -> dict[str, str]:
    """Return {"pod", "namespace", "container"} as far as an engine's annotations contain them.

    CRI-O copies all annotations of the pod, containerd's keys among them, and writes its own last.
    """
    if not isinstance(annotations, dict):
        return {}
    names = {}
    first = 1 if is_of_crio(annotations) else 0
    for name, keys in (
        ("pod", _POD_KEYS),
        ("namespace", _NAMESPACE_KEYS),
        ("container", _CONTAINER_KEYS),
    ):
        for key in keys[first:]:
            if isinstance(annotations.get(key), str):
                names[name] = annotations[key]
                break
    return names


def new_entry(
    annotations: object,
    bundle: str,
    route: str,
    *,
    devices: Sequence[str] = (),
    nodes: Sequence[str] = (),
    replicas: Sequence[str] | None = None,
    identities: Mapping[str, str] | None = None,
    requested: Sequence[str] = (),
    source: str = "",
    runtime: str = "",
) -> dict[str, Any]:
    """Return an entry without its process: of a container that got GPUs by `route`.

    `annotations` are those of its config.json, `devices` qualified CDI names, `nodes` paths in the
    container, `replicas` replica ids (None: not known yet), `requested` the names of the request,
    and `source` the place of the request.
    """
    return {
        **pod_of(annotations),
        "bundle": bundle,
        "devices": devices,
        "nodes": nodes,
        **({} if replicas is None else {"replicas": replicas}),
        **({"identities": identities} if identities else {}),
        "requested": requested,
        "source": source,
        "route": route,
        "runtime": runtime,
    }


def record(root: str, identity: str, entry: dict[str, Any]) -> None:
    """Write the entry of container `identity` of the runtime state root `root` ("": unknown).

    `entry` has at least `pid` and `started` of the process that represents the container until the
    runtime has its state. Raises OSError if the directory cannot be written, or the entry is too
    large to be read again.
    """
    held = directory()
    try:
        if os.stat(held).st_mode & _BY_OTHERS:  # older releases made it
            os.chmod(held, _MODE)
    except FileNotFoundError:
        os.makedirs(held, _MODE, exist_ok=True)
    root = os.path.abspath(root) if root else ""
    whole = {"schema": SCHEMA, "id": identity, "root": root, "since": time.time(), **entry}
    path = path_of(root, identity)
    text = fastjson.dumps(whole) + b"\n"
    if len(text) > _MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    files.replace(path, text, mode=0o600)
    # A sweep reads all entries, which may be of living containers: not each start makes one.
    number = len(os.listdir(held))
    if number > _SWEEP_ABOVE and number % _SWEEP_EACH == 0:
        living(is_swept=True)


def enter(root: str, identity: str, entry: dict[str, Any]) -> GpuhookError | None:
    """Record as `record` does; returns GH1410, for a warning, if that fails."""
    try:
        record(root, identity, entry)
    except OSError as error:
        return not_recorded(identity, error)
    return None


def not_recorded(identity: str, error: OSError) -> GpuhookError:
    """Return GH1410, for a warning: the entry of a container could not be written."""
    where, reason = error.filename or directory(), error.strerror or str(error)
    return fault("GH1410", container=identity, path=where, reason=reason)


def is_holder(entry: dict[str, Any]) -> bool:
    """Return whether an entry has more than warnings: its container got devices."""
    return entry.get("route") != "" or "live" in entry


def living(*, is_swept: bool = False) -> list[dict[str, Any]]:
    """Return the entries of containers that are not known to have exited, oldest first.

    With `is_swept`, for writers, the entries of containers that have exited are removed.
    """
    held = directory()
    entries = []
    try:
        names = os.listdir(held)
    except OSError:
        return []
    for name in names:
        path = os.path.join(held, name)
        is_entry = name.endswith(".json") and not files.is_temporary(name)
        entry = entry_at(path) if is_entry else None
        if entry is None:
            continue
        alive = is_alive(entry)
        if is_swept and is_over(entry, alive):
            remove(path)
        elif alive is not False:
            entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["since"], entry["id"]))


def is_alive(entry: dict[str, Any]) -> bool | None:
    """Return whether the container of an entry exists, or a living process is creating it.

    None if the state of its runtime is not visible here. An entry that `attach` made does not apply
    to a container that was restarted since.
    """
    if entry.get("route") == "attach" and "init" not in entry:
        return False
    is_hidden = False
    if entry["root"]:
        try:
            os.stat(os.path.join(entry["root"], entry["id"]))
        except OSError as error:
            is_hidden = error.errno == errno.EACCES
        else:
            return True
    pid, started = entry.get("pid"), entry.get("started")
    if isinstance(pid, int) and started is not None and procfs.start_time(pid) == started:
        return True
    expected = entry.get("expected")
    if isinstance(expected, (int, float)) and 0 < expected - time.monotonic() <= CREATION:
        return True
    root = entry["root"]
    if not root:
        return None if _is_mounted() else False
    return None if is_hidden or not os.path.isdir(root) else False


def _is_mounted() -> bool:
    """Return whether the ledger was mounted here from elsewhere, as in the device plugin's pod.

    Then the directories and processes here are not those of its host.
    """
    try:
        around = os.stat(os.path.dirname(os.path.abspath(state.directory())))
        return os.stat(directory()).st_dev != around.st_dev
    except OSError:
        return True


def is_over(entry: dict[str, Any], alive: bool | None = None) -> bool:
    """Return whether a writer can remove an entry; `alive` is what is_alive() returned.

    Its whole state root may be gone, too.
    """
    if alive is not None:
        return not alive
    return _is_absent(entry["root"]) and not _is_mounted()


def _is_absent(path: str) -> bool:
    """Return whether nothing exists at a path; a directory without permission hides its content."""
    try:
        os.lstat(path)
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
    return False


def path_of(root: str, identity: str) -> str:
    """Return the file of a container's entry. No id has a `~`, which marks a shortened one."""
    if len(identity) > _MAX_NAME:
        identity = f"{identity[: _MAX_NAME - 9]}~{crc32(os.fsencode(identity)):08x}"
    return os.path.join(directory(), f"{crc32(os.fsencode(root)):08x}-{identity}.json")


def entry_at(path: str) -> dict[str, Any] | None:
    """Return the entry in a file if it can be trusted and has the right form, else None."""
    try:
        entry = fastjson.loads(state.read(path, _MAX_BYTES) or b"")
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("schema") != SCHEMA:
        return None
    if not (isinstance(entry.get("id"), str) and isinstance(entry.get("root"), str)):
        return None
    is_timed = isinstance(entry.get("since"), (int, float))
    if not (is_timed and files.is_path(os.path.join(entry["root"], entry["id"]))):
        return None
    return entry if _is_of_this_life(entry) else {k: entry[k] for k in entry if k not in _LIVE}


def _is_of_this_life(entry: dict[str, Any]) -> bool:
    """Return whether the process still lives to which the live part of an entry applies."""
    init = entry.get("init")
    if not isinstance(init, list) or len(init) != 2 or not isinstance(init[0], int):
        return False
    return init[1] is not None and procfs.start_time(init[0]) == init[1]


def remove(path: str) -> None:
    """Remove an entry's file if it exists."""
    try:
        os.unlink(path)
    except OSError:
        return
