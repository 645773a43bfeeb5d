# SPDX-License-Identifier: Apache-2.0
"""Docker's daemon.json: of the system's dockerd, of the snap, and of rootless dockerds."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gpuhook.containers.stores import docker_store
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.engine_config import (
    CDI_DIRS,
    ConfigPlace,
    EngineConfiguration,
    Runtime,
    Trouble,
)
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version

PATH, SNAP_PATH = docker_store.CONFIG, docker_store.SNAP_CONFIG
OF_A_USER = ".config/docker/daemon.json"  # below the home directory, of a rootless dockerd
# moby/moby#45192: device injection by CDI is no longer experimental.
CDI_BY_DEFAULT = (28, 2)
# moby/moby#50228: --gpus uses CDI if nvidia-cdi-hook is found, else the hook.
GPUS_BY_CDI = (29,)
BUILT_IN = "runc"


@dataclass(frozen=True, slots=True)
class Docker:
    """A dockerd's configuration; the file is optional."""

    path: str
    configuration: EngineConfiguration
    has_selinux: bool
    content: bytes = b""

    def line_of(self, key: str) -> int:
        """Return the line of a member of the file, 1 if it is not found."""
        return line_of(self.content, key) or 1

    def has_cdi(self, daemon: Version | None) -> bool:
        """Return whether it applies CDI devices: by features.cdi, else by its version."""
        enabled = self.configuration.cdi_enabled
        return (daemon or CDI_BY_DEFAULT) >= CDI_BY_DEFAULT if enabled is None else enabled


def read(files: ConfigFiles, path: str = PATH) -> Docker:
    """Return the configuration at a path, the built-in one without a file. Raises OSError."""
    content = files.read(path) or b""
    if not content.strip():
        return _docker(path, (), {}, b"", ())
    line, document = 1, None
    try:
        document = documents.parse_json(content, parse_constant=_no_number)
        reason = "is not a JSON object"
    except json.JSONDecodeError as error:
        line, reason = error.lineno, f"is not JSON: {error.msg}"
    except ValueError as error:
        line, reason = 0, f"is not JSON: {error}"
    if not isinstance(document, dict):
        return _docker(path, (path,), {}, content, (Trouble(ConfigPlace(path, line), reason),))
    return _docker(path, (path,), document, content, tuple(_troubles(path, content, document)))


def is_reloaded(before: bytes | None, after: bytes | None) -> bool:
    """Return whether SIGHUP is enough for a change of daemon.json.

    Source: moby/daemon/reload.go: dockerd keeps the old value of a key that the file no longer has.
    """
    try:
        was, now = (
            documents.parse_json(one) if one and one.strip() else {} for one in (before, after)
        )
    except ValueError:
        return False
    return isinstance(was, dict) and isinstance(now, dict) and was.keys() <= now.keys()


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _docker(
    path: str,
    files: tuple[str, ...],
    document: Mapping[str, Any],
    content: bytes,
    trouble: tuple[Trouble, ...],
) -> Docker:
    features = toml_document.table(document, "features")
    cdi = features.get("cdi")
    default = toml_document.text(document.get("default-runtime")) or BUILT_IN
    configuration = EngineConfiguration(
        engine="docker",
        files=files,
        runtimes=_runtimes(path, content, document),
        default=default,
        cdi_enabled=cdi if isinstance(cdi, bool) else None,
        cdi_dirs=toml_document.texts(document.get("cdi-spec-dirs")) or CDI_DIRS,
        trouble=trouble,
    )
    return Docker(path, configuration, document.get("selinux-enabled") is True, content)


def _runtimes(path: str, content: bytes, document: Mapping[str, Any]) -> dict[str, Runtime]:
    runtimes = {BUILT_IN: Runtime(BUILT_IN, "", ConfigPlace(path))}
    for name, value in toml_document.table(document, "runtimes").items():
        if isinstance(value, dict):
            runtimes[name] = Runtime(
                name,
                toml_document.text(value.get("path")),
                ConfigPlace(path, line_of(content, name)),
                toml_document.text(value.get("runtimeType")),
                value,
            )
    return runtimes


def _troubles(path: str, content: bytes, document: Mapping[str, Any]) -> list[Trouble]:
    found = []
    kinds = (("runtimes", dict), ("features", dict), ("default-runtime", str))
    for name, kind in (*kinds, ("cdi-spec-dirs", list)):
        value = document.get(name)
        if value is not None and not isinstance(value, kind):
            wanted = {dict: "an object", str: "a string", list: "a list"}[kind]
            place = ConfigPlace(path, line_of(content, name))
            found.append(Trouble(place, f'has "{name}" that is not {wanted}'))
    for name, value in toml_document.table(document, "runtimes").items():
        if not isinstance(value, dict):
            place = ConfigPlace(path, line_of(content, name))
            found.append(Trouble(place, f'has a runtime "{name}" that is not an object'))
    return found


def line_of(content: bytes, key: str) -> int:
    """Return the line of the first member of that name in a JSON document, 0 for none."""
    wanted = re.compile(rf"{re.escape(json.dumps(key))}\s*:".encode())
    found = wanted.search(content)
    return content[: found.start()].count(b"\n") + 1 if found else 0
