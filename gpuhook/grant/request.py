# SPDX-License-Identifier: Apache-2.0
"""What a container asks for: an OCI spec in, the sources of its device request out.

HOT. No vendor's word is in here: a Vocabulary names the variables and paths. Which source wins,
and whether policy allows it, is policy.py's; what a name means on this host is resolve.py's.
"""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_NAMES = 4096
ANNOTATIONS, MOUNTS, ENV = "annotations", "mounts", "env"
_IMAGE_WORDS = frozenset(("all", "none"))


class Vocabulary:
    """The words in which one vendor's containers ask."""

    __slots__ = (
        "capabilities_env",
        "default_kind",
        "devices_env",
        "hints_env",
        "memory_limit_env",
        "memory_prefix",
        "memory_request_env",
        "mount_prefix",
        "replicas_env",
    )

    def __init__(
        self,
        *,
        devices_env: str,
        capabilities_env: str,
        replicas_env: str,
        mount_prefix: str,
        default_kind: str,
        memory_request_env: str,
        memory_limit_env: str,
        memory_prefix: str,
        hints_env: str,
    ) -> None:
        self.devices_env = devices_env
        self.capabilities_env = capabilities_env
        self.replicas_env = replicas_env
        self.mount_prefix = mount_prefix
        self.default_kind = default_kind
        self.memory_request_env = memory_request_env
        self.memory_limit_env = memory_limit_env
        self.memory_prefix = memory_prefix
        self.hints_env = hints_env


class Source:
    """One place that names devices: its kind, where exactly, and the names in order, each once."""

    __slots__ = ("kind", "names", "where")

    def __init__(self, kind: str, where: str, names: list[str]) -> None:
        self.kind = kind
        self.where = where
        self.names = names

    @property
    def is_grant(self) -> bool:
        """Whether somebody meant this very container to have devices.

        A variable that says `all` (or `none`) is not that: images bake it in and run on
        nodes without a GPU every day. Everything else names devices of this node.
        """
        return self.kind != ENV or not _IMAGE_WORDS.issuperset(self.names)


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables of `process.env`; of duplicates the last wins, as in the container.

    Entries without '=' are nobody's variable and are left out (they stay in config.json).
    """
    process = spec.get("process")
    entries = process.get("env") if isinstance(process, dict) else None
    pairs = (entry.partition("=") for entry in _items(entries) if isinstance(entry, str))
    return {name: value for name, equals, value in pairs if equals}


def limits_memory(spec: dict[str, Any], words: Vocabulary) -> bool:
    """Return whether mounts or variables of a spec may limit its memory of devices.

    Most containers have neither, and pay for no more than this look.
    """
    names = (words.memory_limit_env + "=", words.memory_request_env + "=")
    process = spec.get("process")
    entries = process.get("env") if isinstance(process, dict) else None
    if any(isinstance(entry, str) and entry.startswith(names) for entry in _items(entries)):
        return True
    below = words.memory_prefix + "/"
    mounts = _items(spec.get("mounts"))
    return any(isinstance(m, dict) and str(m.get("destination")).startswith(below) for m in mounts)


def sources(spec: dict[str, Any], words: Vocabulary, prefixes: list[str]) -> list[Source]:
    """Return every source that names devices, in the order of precedence; [] asks for nothing.

    `prefixes` are those of the annotation keys that carry CDI names.
    """
    found = (
        _from_annotations(spec, prefixes),
        _from_mounts(spec, words.mount_prefix),
        _from_environment(spec, words.devices_env),
    )
    return [source for source in found if source is not None]


def _from_annotations(spec: dict[str, Any], prefixes: list[str]) -> Source | None:
    annotations = spec.get("annotations")
    if not isinstance(annotations, dict):
        return None
    keys = sorted(key for key in annotations if key.startswith(tuple(prefixes)))
    values = [annotations[key] for key in keys if isinstance(annotations[key], str)]
    names = _names(",".join(values), "annotation " + ", ".join(keys))
    return Source(ANNOTATIONS, ", ".join(keys), names) if names else None


def _from_mounts(spec: dict[str, Any], prefix: str) -> Source | None:
    below = prefix.rstrip("/") + "/"
    named = []
    for mount in _items(spec.get("mounts")):
        destination = mount.get("destination") if isinstance(mount, dict) else None
        if not isinstance(destination, str) or not destination.startswith(below):
            continue
        if mount.get("source") == "/dev/null":
            named.append(_cdi_name(destination[len(below) :]))
    names = _names(",".join(named), "mounts below " + prefix)
    return Source(MOUNTS, below, names) if names else None


def _cdi_name(rest: str) -> str:
    """Return the device that a mount's path names: `cdi/<vendor>/<class>/<name>` or an id."""
    if not rest.startswith("cdi/"):
        return rest
    parts = rest[4:].split("/")
    return "{}/{}={}".format(*parts) if len(parts) == 3 else rest[4:]


def _from_environment(spec: dict[str, Any], variable: str) -> Source | None:
    value = environment(spec).get(variable)
    if value is None:
        return None
    names = _names(value, "variable " + variable)
    if not names or "void" in names:
        return None
    return Source(ENV, variable, ["all"] if "all" in names else names)


def _items(value: object) -> list[Any]:
    """Return `value` if it is an array; of anything else the runtime will say what is wrong."""
    return value if isinstance(value, list) else []


def _names(text: str, where: str) -> list[str]:
    """Return the names of a comma list: trimmed, each once, in order; bounded and printable."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    names = [name for name in names if name]
    if len(names) > MAX_NAMES:
        raise fault("GH1005", count=len(names), limit=MAX_NAMES, where=where)
    for name in names:
        if not name.isprintable() or len(name) > 255:
            raise fault("GH1004", name=name, where=where)
    return names
