# SPDX-License-Identifier: Apache-2.0
"""What a container asks for: an OCI spec in, the sources of its device request out.

No vendor's word is in here: a Vocabulary names the variables and paths. Which source wins, and
whether policy allows it, is policy.py's; what a name means on this host is resolve.py's, and how
mounts name devices mount_requests.py's.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot.settings import AUTO
from gpuhook.request import mount_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MAX_NAMES = 4096
ANNOTATIONS, MOUNTS, ENV = "annotations", "mounts", "env"
# Variables of an orchestrator in place of the devices' own; and an image that says so by its age.
RESOURCES, IMAGE = "resources", "image"
# Annotations that are no grant: annotation_origin.py tells who wrote them.
POD_ANNOTATIONS = "pod-annotations"
# What a pod or an image chooses by itself. Policy judges all of these alike.
OWN_CHOICE = (POD_ANNOTATIONS, RESOURCES, ENV, IMAGE)
_IMAGE_WORDS = frozenset(("all", "none"))


class Vocabulary:
    """The words in which one vendor's containers ask."""

    __slots__ = (
        "capabilities_env",
        "default_kind",
        "devices_env",
        "extra_mounts",
        "extras",
        "hints_env",
        "image_requirement_env",
        "image_version_env",
        "memory_limit_env",
        "memory_prefix",
        "memory_request_env",
        "mount_prefix",
        "privileged_kinds",
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
        image_version_env: str,
        image_requirement_env: str,
        memory_request_env: str,
        memory_limit_env: str,
        memory_prefix: str,
        hints_env: str,
        extras: dict[str, tuple[str, str, str]],
        extra_mounts: dict[str, str],
        privileged_kinds: tuple[str, ...],
    ) -> None:
        """Take the words; those of extra_requests.py are the last three.

        `extras` has how each variable is read, the kind that it asks for and the device of that,
        `extra_mounts` the kind that ids in a directory below `mount_prefix` are of.
        """
        self.devices_env = devices_env
        self.capabilities_env = capabilities_env
        self.replicas_env = replicas_env
        self.mount_prefix = mount_prefix
        # An image with the first of them and without the second is from before the devices' own.
        self.image_version_env = image_version_env
        self.image_requirement_env = image_requirement_env
        self.default_kind = default_kind
        self.memory_request_env = memory_request_env
        self.memory_limit_env = memory_limit_env
        self.memory_prefix = memory_prefix
        self.hints_env = hints_env
        self.extras = extras
        self.extra_mounts = extra_mounts
        self.privileged_kinds = privileged_kinds


class Source:
    """One place that names devices: its kind, where exactly, and the names in order, each once.

    `origin` is who wrote annotations, "" for another kind.
    """

    __slots__ = ("kind", "names", "origin", "where")

    def __init__(self, kind: str, where: str, names: list[str], origin: str = "") -> None:
        self.kind = kind
        self.where = where
        self.names = names
        self.origin = origin

    @property
    def is_grant(self) -> bool:
        """Whether somebody meant this very container to have devices.

        A variable that says `all` (or `none`) is not that: images bake it in and run on
        nodes without a GPU every day, those of old with no such variable at all. Everything else
        names devices of this node.
        """
        return self.kind not in (ENV, IMAGE) or not _IMAGE_WORDS.issuperset(self.names)


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables of `process.env`; of duplicates the last wins, as in the container.

    Entries without '=' are nobody's variable and are left out (they stay in config.json).
    """
    process = spec.get("process")
    entries = process.get("env") if isinstance(process, dict) else None
    found = {}
    for entry in _items(entries):
        if isinstance(entry, str):
            name, equals, value = entry.partition("=")
            if equals:
                found[name] = value
    return found


def limits_memory(spec: dict[str, Any], words: Vocabulary) -> bool:
    """Return whether mounts or variables of a spec may limit its memory of devices.

    Most containers have neither, and pay for no more than this look.
    """
    if _has_variable(spec, (words.memory_limit_env + "=", words.memory_request_env + "=")):
        return True
    below = words.memory_prefix + "/"
    for mount in _items(spec.get("mounts")):
        if isinstance(mount, dict) and str(mount.get("destination")).startswith(below):
            return True
    return False


def has_extras(spec: dict[str, Any], words: Vocabulary) -> bool:
    """Return whether a container may ask for something beside its devices, see extra_requests.py.

    Most containers have none of these words, and pay for no more than this look.
    """
    if _has_variable(spec, tuple([name + "=" for name in words.extras])):
        return True
    mounts, rooms = spec.get("mounts"), words.extra_mounts
    return any(
        next(mount_requests.below(mounts, f"{words.mount_prefix}/{one}"), "") for one in rooms
    )


def _has_variable(spec: dict[str, Any], starts: tuple[str, ...]) -> bool:
    process = spec.get("process")
    for entry in _items(process.get("env") if isinstance(process, dict) else None):
        if isinstance(entry, str) and entry.startswith(starts):
            return True
    return False


def names_of(text: str, where: str) -> list[str]:
    """Return the names of a comma list, each once; raises GH1004 and GH1005, which name `where`."""
    return _names(text, where)


def is_of_old(environment: Mapping[str, str], words: Vocabulary) -> bool:
    """Return whether variables are those of an image that is older than the devices' variable.

    It asks for every device, and for all of the driver.
    """
    is_versioned = bool(environment.get(words.image_version_env))
    return is_versioned and not environment.get(words.image_requirement_env)


def sources(
    spec: dict[str, Any],
    words: Vocabulary,
    prefixes: list[str],
    resources: Sequence[str] = (),
    *,
    takes_old: bool = False,
    accept: str = AUTO,
) -> list[Source]:
    """Return every source that names devices, in the order of precedence; [] asks for nothing.

    `prefixes` are those of the annotation keys that carry CDI names. `resources` are variables
    that count in place of the devices' own, where a container has any of them. With `takes_old`,
    an image of old asks for all. `accept` is request.acceptAnnotations.
    """
    granting, others = _from_annotations(spec, prefixes, accept)
    found = (
        granting,
        _from_mounts(spec, words),
        others,
        _from_variables(spec, words, resources, takes_old=takes_old),
    )
    return [source for source in found if source is not None]


def _from_annotations(
    spec: dict[str, Any], prefixes: list[str], accept: str
) -> tuple[Source | None, Source | None]:
    """Return (the annotations that are a grant, those that are not)."""
    held = spec.get("annotations")
    if not isinstance(held, dict):
        return None, None
    starts = tuple(prefixes)
    keys = sorted(key for key in held if key.startswith(starts) and isinstance(held[key], str))
    if not keys:
        return None, None
    from gpuhook.request import annotation_origin  # few containers have such an annotation

    origins = annotation_origin.origins(held, keys)
    grants = {key: annotation_origin.is_grant(origins[key], accept) for key in keys}
    return (
        _from_keys(ANNOTATIONS, held, [key for key in keys if grants[key]], origins),
        _from_keys(POD_ANNOTATIONS, held, [key for key in keys if not grants[key]], origins),
    )


def _from_keys(
    kind: str, annotations: dict[str, str], keys: list[str], origins: dict[str, str]
) -> Source | None:
    where = ", ".join(keys)
    names = _names(",".join(annotations[key] for key in keys), "annotation " + where)
    origin = "; ".join(dict.fromkeys(origins[key] for key in keys))
    return Source(kind, where, names, origin) if names else None


def _from_mounts(spec: dict[str, Any], words: Vocabulary) -> Source | None:
    found, _ = mount_requests.names(spec.get("mounts"), words.mount_prefix, words.extra_mounts)
    names = _checked(found, "mounts below " + words.mount_prefix)
    if not names or "void" in names:
        return None
    where = words.mount_prefix.rstrip("/") + "/"
    return Source(MOUNTS, where, ["all"] if "all" in names else names)


def _from_variables(
    spec: dict[str, Any], words: Vocabulary, resources: Sequence[str], *, takes_old: bool
) -> Source | None:
    variables = environment(spec)
    there = [name for name in resources if name in variables]
    if there:
        return _from_environment(variables, RESOURCES, there)
    if words.devices_env in variables:
        return _from_environment(variables, ENV, [words.devices_env])
    if takes_old and is_of_old(variables, words):
        where = f"{words.image_version_env} without {words.image_requirement_env}"
        return Source(IMAGE, where, ["all"])
    return None


def _from_environment(
    variables: Mapping[str, str], kind: str, keys: Sequence[str]
) -> Source | None:
    where = ", ".join(keys)
    names = _names(",".join(variables[key] for key in keys), "variable " + where)
    if not names or "void" in names:
        return None
    return Source(kind, where, ["all"] if "all" in names else names)


def _items(value: object) -> list[Any]:
    """Return `value` if it is an array; of anything else the runtime will say what is wrong."""
    return value if isinstance(value, list) else []


def _names(text: str, where: str) -> list[str]:
    """Return the names of a comma list: trimmed, each once, in order; bounded and printable."""
    return _checked([part.strip() for part in text.split(",")], where)


def _checked(parts: list[str], where: str) -> list[str]:
    """Return names, each once; GH1005 for too many of them, GH1004 for one that is no name."""
    names = [name for name in dict.fromkeys(parts) if name]
    if len(names) > MAX_NAMES:
        raise fault("GH1005", count=len(names), limit=MAX_NAMES, where=where)
    for name in names:
        if not name.isprintable() or len(name) > 255:
            raise fault("GH1004", name=name, where=where)
    return names
