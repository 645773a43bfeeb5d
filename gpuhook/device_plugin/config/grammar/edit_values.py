# SPDX-License-Identifier: Apache-2.0
"""The kinds of values in an interposer's container edits: variables, paths, mount options."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.value_kinds import (
    ChoiceList,
    Text,
    UnfitError,
    ValueKind,
    shown,
    unfit,
)
from gpuhook.errors import printable
from gpuhook.host.suggestion import nearest
from gpuhook.request.parse import Vocabulary
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = Text(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?", "a name of lower-case letters and digits")
PLACEHOLDERS = ("uuid", "index", "limitMiB", "limitBytes", "replicas")
_LISTED = "{" + "}, {".join(PLACEHOLDERS) + "}"
# The kubelet's mounts are private binds; its API has no field for nosuid or noexec.
_MOUNT_OPTIONS = ("ro", "rw", "bind", "rbind", "private", "rprivate")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_ONLY_IN = "placeholders work in the values of `env` and in `hostPath` only"
_OWN = "GPUHOOK_"
_WORDS = [vendor.vocabulary for vendor in vendors()]
# Variables that grant devices or memory: only the plugin may set them.
_GRANT_VARIABLES = (
    *(words.devices_env for words in _WORDS),
    *(words.memory_request_env for words in _WORDS),
    *(words.memory_limit_env for words in _WORDS),
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
)
# A mount below these is a grant; /var/run is a link to /run in most images.
_GRANTS = tuple(
    path
    for prefix in (Vocabulary.memory_prefix, *(words.mount_prefix for words in _WORDS))
    for path in (prefix, prefix.removeprefix("/var"))
)


def placeholders(text: str) -> list[str]:
    """Return the words in braces in a text, known placeholders or not.

    >>> placeholders("/run/{uuid}/{a b}")
    ['uuid']
    """
    return _PLACEHOLDER.findall(text)


@dataclass(frozen=True, slots=True)
class EnvironmentValue(ValueKind):
    """Variables as CDI lists them, "NAME=value"; Configuration has pairs (name, value)."""

    def parse(self, value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, list):
            hint = "write each as an entry: - NAME=value"
            raise unfit("a list of NAME=value", value, hint)
        found: dict[str, str] = {}
        for index, item in enumerate(value):
            name, variable = _variable(item, index)
            if name in found:
                raise UnfitError(f"{name} is set twice", index=index)
            found[name] = variable
        return tuple(found.items())

    def plain(self, value: Any) -> object:
        return [f"{name}={variable}" for name, variable in value]

    def schema(self) -> dict[str, object]:
        item = {"type": "string", "pattern": rf"^{_VARIABLE.pattern}=[^\x00-\x1f\x7f]*$"}
        return {"type": "array", "items": item}


@dataclass(frozen=True, slots=True)
class EditPath(ValueKind):
    """An absolute path below `root`; `check` raises UnfitError for one that is not allowed."""

    check: Callable[[str], None]
    root: str = "/"

    def parse(self, value: object) -> str:
        path = _absolute(value)
        if not path.startswith(self.root):
            raise unfit(f"a path below {self.root.rstrip('/')}", path)
        self.check(path)
        return path

    def schema(self) -> dict[str, object]:
        return {"type": "string", "pattern": rf"^{self.root}[^\x00-\x1f\x7f]+$"}


@dataclass(frozen=True, slots=True)
class MountOptions(ValueKind):
    """The options of a mount; Configuration has whether it is read-only."""

    def parse(self, value: object) -> bool:
        options = _OPTIONS.parse(value)
        if {"ro", "rw"} <= set(options):
            raise UnfitError("has ro and rw", "keep one of them")
        return "rw" not in options

    def plain(self, value: Any) -> object:
        return ["ro" if value else "rw"]

    def schema(self) -> dict[str, object]:
        return _OPTIONS.schema()


_OPTIONS = ChoiceList(_MOUNT_OPTIONS, may_be_empty=True)


def _absolute(value: object) -> str:
    """Return the normalized path; raises UnfitError if it is relative, has `..` or is the root."""
    if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
        raise unfit("an absolute path", value)
    if ".." in value.split("/"):
        raise UnfitError(f"must not contain .., found {shown(value)}")
    path = "/" + "/".join(part for part in value.split("/") if part not in ("", "."))
    if path == "/":
        raise UnfitError("must be more than the root directory")
    return path


def _variable(item: object, index: int) -> tuple[str, str]:
    name, equals, value = item.partition("=") if isinstance(item, str) else ("", "", "")
    if not equals or not _VARIABLE.fullmatch(name):
        raise unfit("NAME=value", item, index=index)
    if not value.isprintable():
        raise UnfitError(f"the value of {name} must be on one line, and printable", index=index)
    if name.startswith(_OWN) or name in _GRANT_VARIABLES:
        raise UnfitError(
            f"{name} cannot be set by an interposer: it grants devices or memory",
            "remove it: the plugin sets it itself",
            index,
        )
    _check_placeholders(value, index=index)
    return name, value


def _check_placeholders(
    text: str, known: tuple[str, ...] = PLACEHOLDERS, index: int | None = None
) -> None:
    for word in placeholders(text):
        if word not in known:
            near = nearest(word, known)
            hint = f"did you mean {{{near}}}?" if near else f"the placeholders are {_LISTED}"
            if not known:
                hint = _ONLY_IN
            raise UnfitError(f"{{{printable(word, 40)}}} is not a placeholder here", hint, index)


def _check_container_path(path: str) -> None:
    """Refuse a path in the directories where mounts grant devices, and placeholders."""
    if placeholders(path):
        raise UnfitError(f"has a placeholder, found {shown(path)}", _ONLY_IN)
    for prefix in _GRANTS:
        if path == prefix or path.startswith(prefix + "/"):
            message = f"is below {prefix}, where mounts grant devices or memory"
            raise UnfitError(message, "mount it elsewhere")


def _check_device_node(path: str) -> None:
    """Refuse the device nodes of GPUs, which the plugin assigns itself, and placeholders."""
    for vendor in vendors():
        if vendor.traces.is_name_of_node(path):
            message = f"is a device of {vendor.title}'s driver, found {shown(path)}"
            raise UnfitError(message, "containers get it with the resource that they request")
    _check_placeholders(path, ())


HOST_PATH = EditPath(_check_placeholders)
CONTAINER_PATH = EditPath(_check_container_path)
DEVICE_NODE = EditPath(_check_device_node, "/dev/")
