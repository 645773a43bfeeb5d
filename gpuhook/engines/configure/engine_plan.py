# SPDX-License-Identifier: Apache-2.0
"""What configuring an engine comes to: bytes of files, before and after."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Literal, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One file that changes: None is a file that is not there.

    `mode` is that of a new file; one that is there keeps its own, and its owner.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class ExpectedConfig:
    """What the engine's configuration says when all changes are made.

    `runtimes` are the programs of runtimes by their names, "" where the engine chooses; `default`
    is the name of the default runtime, "" where it is not ours to say. `hooks` are the files of
    OCI hooks that have to be read.
    """

    runtimes: Mapping[str, str]
    default: str = ""
    has_cdi: bool = False
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """How the engine takes up a changed configuration.

    `units` are those of systemd that it may run as, the first that is active is meant. `processes`
    are the names of its program. `reloads` is whether SIGHUP is enough, and it needs no restart.
    `ends_containers` is whether its containers end with it.
    """

    units: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    reloads: bool = False
    ends_containers: bool = False


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """All that configuring an engine comes to; without changes it is configured already.

    `notes` are sentences for the person who configures: what was decided and why, and what is left
    to do by hand; those of `on_restart` are told only if something is written. `config` is the file
    that the engine is started with: what is planned is read from there. "" is the usual one, if
    that reads any file that changes. None is for what cannot be read as the engine will, such as a
    template: then `expected` is not checked.
    """

    engine: str
    changes: tuple[ConfigChange, ...]
    expected: ExpectedConfig
    service: Service
    notes: tuple[str, ...] = ()
    config: str | None = ""
    on_restart: tuple[str, ...] = ()


# wrapper: a runtime whose program is gpuhook-runtime. hook: the engine's own runtime, with our
# prestart hook. cdi: the engine applies CDI specs by itself.
Route = Literal["wrapper", "hook", "cdi"]
ROUTES: tuple[Route, ...] = ("wrapper", "hook", "cdi")
NAME = "nvidia"  # of the runtime, which a RuntimeClass calls its handler


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the engine is to have.

    `name` is the runtime's; `program` and `hook` are absolute paths on the node. Without
    `takes_over`, a runtime of that name that is not gpuhook's stays, and nothing is changed.
    `enables_cri` is for a containerd whose configuration disables what a kubelet talks to.
    """

    route: Route
    name: str
    program: str
    hook: str
    is_default: bool = False
    takes_over: bool = False
    enables_cri: bool = False


@dataclass(frozen=True, slots=True)
class EngineNode:
    """What an engine's plan is made from.

    `version` is that of the engine's daemon, None where it is not known. `config` and `drop_in`
    are files that somebody chose, "" for the engine's usual ones. `home` is that of the user whose
    engine it is, None for root's. `base_spec` is what `ctr oci spec` prints there, None where
    nobody asked: containerd's route hook makes its base_runtime_spec of it.
    """

    files: ConfigFiles
    version: Version | None = None
    config: str = ""
    drop_in: str = ""
    home: str | None = None
    base_spec: bytes | None = None


# The engine's name -> its module below gpuhook.engines.configure.
_MODULES = {
    "containerd": "containerd.configure_containerd",
    "crio": "drop_in.configure_crio",
    "docker": "docker.configure_docker",
    "podman": "drop_in.configure_podman",
}
ENGINES = tuple(_MODULES)


class Engine(Protocol):
    """What each engine's module has."""

    def plan(self, node: EngineNode, wanted: EngineOptions) -> EnginePlan:
        """Return what is to change; raises a fault where it cannot be, and OSError."""

    def without(
        self, path: str, content: bytes, wanted: EngineOptions, before: bytes | None = None
    ) -> bytes | None:
        """Return a file that somebody has edited since, less what `wanted` had brought into it.

        What ours took the place of comes back: `before` is the file before it was configured,
        None where there was none. None where nothing but what was ours is left. Raises a fault
        where it cannot be told apart.
        """


def engine(name: str) -> Engine:
    """Return the engine of that name, one of ENGINES."""
    found: Engine = importlib.import_module(f"gpuhook.engines.configure.{_MODULES[name]}")
    return found
