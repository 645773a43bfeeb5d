# SPDX-License-Identifier: Apache-2.0
"""The files of an installation besides its tree and the engines' configurations.

With a CDI spec that names a removed hook, an engine with CDI starts no container; one of device
nodes alone becomes stale, as nothing refreshes it; labels of Node Feature Discovery attract pods. A
file is removed only if its content shows that gpuhook wrote it.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file, spec_notes
from gpuhook.cdi.hot import spec_rules
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.health import health_marks
from gpuhook.engines.configure.configure_record import RecordStore
from gpuhook.engines.configure.configure_record import directory as record_directory
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.install.mounted_host import inside
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.engines.configure.host_files import Host

_SPECS = ("/etc/cdi", "/run/cdi")
_STATE = "/run/gpuhook"
# A later plugin needs these: former settings of GPUs, and health marks.
_OF_GPUS = frozenset({*saved_policies.FILES, *health_marks.SERVICES})
_FEATURES = LabelFlags().output_file
# The vendors' own labellers have no such label.
_OWN_LABELS = tuple(f"{vendor.domain}/gpu.replica-memory=".encode() for vendor in vendors())
# Directories below the kubelet's with sockets of device plugins, and of DRA drivers.
_SOCKETS = {
    "device-plugins": tuple(f"{vendor.name}-" for vendor in vendors()),
    "plugins_registry": tuple(vendor.dra_driver for vendor in vendors()),
}
_KUBELETS = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Paths of the host that can be removed, and sentences about those that remain."""

    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find(host: Host, at: str, *, is_installed: bool) -> Leftovers:
    """Return the files of the installation in the host's directory `at`. Raises OSError.

    The state, the labels and specs of device nodes do not contain a path. They belong to this
    installation if it `is_installed`, and neither other programs of gpuhook nor a device plugin or
    DRA driver use them. The image has its own tree in the directory `at`; its root is not the host
    whose specs are mounted there.
    """
    if not is_installed and host.status(at):
        return Leftovers()
    paths: list[str] = []
    of_nodes: list[str] = []
    notes: list[str] = []
    for path in _specs(host):
        content = _content(host, path)
        spec = _own_form(path, content)
        if f"{at}/".encode() not in content:
            of_nodes += [path] if spec and spec_notes.options(spec) is not None else []
        elif spec and _calls_hook(spec, at):
            paths.append(path)
        else:
            notes.append(f"{path} refers to a program in {at}, but gpuhook did not write all of it")
    user = _user(host, at)
    features = [_FEATURES] if _has_own_label(_content(host, _FEATURES)) else []
    if is_installed and not user:
        paths += [*of_nodes, *features, *_states(host)]
    elif is_installed and (host.names(_STATE) or features or of_nodes):
        notes.append(f"{' and '.join((*of_nodes, _STATE, _FEATURES))} remain: {user} exists")
    return Leftovers(tuple(paths), tuple(notes))


def remove(host: Host, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the paths; returns a sentence about each that could not be removed."""
    notes = []
    for path in paths:
        here = inside(host.root, path)
        try:
            if os.path.isdir(here) and not os.path.islink(here):
                shutil.rmtree(here)
            else:
                os.unlink(here)
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{path} remains: {error.strerror}")
    with suppress(OSError):  # it is not empty
        os.rmdir(inside(host.root, _STATE))
    return tuple(notes)


def _specs(host: Host) -> Iterator[str]:
    for directory in _SPECS:
        for name in host.names(directory):
            path = f"{directory}/{name}"
            if name.endswith((".json", ".yaml")) and not _is_link(host, path):
                yield path


def _is_link(host: Host, path: str) -> bool:
    directory, name = posixpath.split(path)
    return os.path.islink(os.path.join(inside(host.root, directory), name))


def _content(host: Host, path: str) -> bytes:
    try:
        return host.read(path) or b""
    except (OSError, GpuhookError):
        return b""  # not a file, or too large for a file of gpuhook


def _has_own_label(content: bytes) -> bool:
    return any(label in content for label in _OWN_LABELS)


def _own_form(path: str, content: bytes) -> Spec | None:
    """Return a spec that has the form in which gpuhook writes one, None for another file."""
    try:
        document = spec_file.parser(path)(content, path)
        spec_rules.check(document, path)
        text = spec_file.document(document, path.rpartition(".")[2])
    except GpuhookError:
        return None
    return document if text.encode() == content else None


def _calls_hook(spec: Spec, at: str) -> bool:
    """Return whether a spec calls the hook of the installation at `at`."""
    edits = [spec, *spec["devices"]]
    hooks = [hook for one in edits for hook in (one.get("containerEdits") or {}).get("hooks") or ()]
    return any(hook["path"].startswith(f"{at}/") for hook in hooks if hook_args.is_ours(hook))


def _user(host: Host, at: str) -> str:
    """Return the program or socket that uses the host's state, "" for none. Raises GH2009."""
    for engine in ENGINES:
        record = RecordStore(host, record_directory(engine, None)).load()
        program = record.wanted.program if record else ""
        if program and not program.startswith(f"{at}/") and host.status(program):
            return program
    for directory in state.PROGRAM_DIRS:
        if host.status(f"{directory}/{GPUHOOK_RUNTIME}"):
            return f"{directory}/{GPUHOOK_RUNTIME}"
    for kubelet in _KUBELETS:
        for directory, words in _SOCKETS.items():
            for name in host.names(f"{kubelet}/{directory}"):
                if name.startswith(words) and name.endswith(".sock"):
                    return f"{kubelet}/{directory}/{name}"
    return ""


def _states(host: Host) -> list[str]:
    if _is_link(host, _STATE):
        return []
    return [f"{_STATE}/{name}" for name in host.names(_STATE) if name not in _OF_GPUS]
