# SPDX-License-Identifier: Apache-2.0
"""What configuring an engine comes to: bytes of files, before and after."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


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
