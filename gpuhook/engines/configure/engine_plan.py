# SPDX-License-Identifier: Apache-2.0
"""The plan for one engine: its options, its node, and the bytes of files before and after."""

from __future__ import annotations

import importlib
import posixpath
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.engines.configure.host_files import Kept
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version

# wrapper: a runtime whose program is gpuhook-runtime. hook: the engine's runtime with the prestart
# hook. cdi: the engine applies CDI specs by itself. nri: the engine asks gpuhook's NRI plugin.
Route = Literal["wrapper", "hook", "cdi", "nri"]
ROUTES: tuple[Route, ...] = ("wrapper", "hook", "cdi")
NAME = "nvidia"  # of the runtime; a RuntimeClass calls it the handler
# The engine's name -> its module below gpuhook.engines.configure.
_MODULES = {
    "containerd": "containerd.configure_containerd",
    "crio": "drop_in.configure_crio",
    "docker": "docker.configure_docker",
    "podman": "drop_in.configure_podman",
}
ENGINES = tuple(_MODULES)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The desired configuration of an engine.

    `name` is the runtime's, and `further_names` has others of the same runtime; `program` and
    `hook` are absolute paths on the node. Without `takes_over`, a runtime with such a name and
    another program is an error. `enables_cri` removes the CRI plugin from containerd's
    disabled_plugins.
    """

    route: Route
    name: str
    program: str
    hook: str
    is_default: bool = False
    takes_over: bool = False
    enables_cri: bool = False
    further_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the runtime; the first one is that of the default runtime."""
        return (self.name, *self.further_names)

    def of_each_name(self) -> Iterator[EngineOptions]:
        """Yield the options for each name alone; the first one is that of the default runtime."""
        for name in self.names:
            is_default = self.is_default and name == self.name
            yield replace(self, name=name, further_names=(), is_default=is_default)

    @property
    def default(self) -> str:
        """The name of the default runtime that the engine must have, "" for any."""
        return self.name if self.is_default else ""

    def is_own(self, program: str) -> bool:
        """Return whether a runtime's program is gpuhook's, by its name or by these options."""
        return program == self.program or posixpath.basename(program) == GPUHOOK_RUNTIME


@dataclass(frozen=True, slots=True)
class EngineNode:
    """The node of an engine, from which the plan is made.

    `version` is the daemon's, None if unknown. `config` and `drop_in` are the files that the user
    chose, "" for the engine's usual ones. `home` is the home directory of the user of a rootless
    engine, None for root's engine. `base_spec` is the output of `ctr oci spec`, from which
    containerd's route hook makes its base_runtime_spec; None if ctr did not run.
    """

    files: ConfigFiles
    version: Version | None = None
    config: str = ""
    drop_in: str = ""
    home: str | None = None
    base_spec: bytes | None = None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A file that changes. A content of None is a file that does not exist.

    `mode` is that of a new file; an existing file keeps its mode and owner, or gets those of
    `kept`.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class ExpectedConfig:
    """What the engine's configuration must contain after the changes.

    `runtimes` has the programs by name of runtime, "" if the engine chooses the program; `default`
    is the name of the default runtime, "" for any. `hooks` are the OCI hook files that the engine
    must read.
    """

    runtimes: Mapping[str, str]
    default: str = ""
    has_cdi: bool = False
    hooks: tuple[str, ...] = ()
    has_nri: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """The service that must read the changed configuration.

    `units` are possible units of systemd; the first active one is used. `processes` are the names
    of the program. `reloads` is set if SIGHUP is enough. `ends_containers` is set if a restart
    stops the engine's containers.
    """

    units: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    reloads: bool = False
    ends_containers: bool = False


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The changes that configure an engine; without changes it is configured already.

    `notes` are sentences for the user, about decisions and remaining steps; those of `on_restart`
    are printed only if something is written. `config` is the file with which the engine starts, and
    from which the result is read; "" is the usual one, if it reads any file that changes. With
    None, `expected` is not checked: gpuhook cannot read the result as the engine will, such as a
    template.
    """

    engine: str
    changes: tuple[ConfigChange, ...]
    expected: ExpectedConfig
    service: Service
    notes: tuple[str, ...] = ()
    config: str | None = ""
    on_restart: tuple[str, ...] = ()


def routes(engine: str) -> tuple[Route, ...]:
    """Return the routes of an engine."""
    return (*ROUTES, "nri") if engine in ("containerd", "crio") else ROUTES


def default_route(engine: str) -> Route:
    """Return the route by which an engine gives GPUs unless another one is chosen."""
    return "hook" if engine == "podman" else "wrapper"


class Engine(Protocol):
    """The functions of each engine's module."""

    def plan(self, node: EngineNode, options: EngineOptions) -> EnginePlan:
        """Return the changes. Raises a fault if the engine cannot be configured, and OSError."""

    def without(
        self, path: str, content: bytes, options: EngineOptions, before: bytes | None = None
    ) -> bytes | None:
        """Return a file that a user edited, without what gpuhook wrote; None if nothing is left.

        Replaced settings get their old values from `before`, the file before it was configured,
        None if it did not exist. Raises a fault if the settings cannot be separated.
        """


def engine(name: str) -> Engine:
    """Return the module of the engine `name`, one of ENGINES."""
    module: Engine = importlib.import_module(f"gpuhook.engines.configure.{_MODULES[name]}")
    return module
