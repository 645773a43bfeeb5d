# SPDX-License-Identifier: Apache-2.0
"""The devices that a container requests: an OCI spec in, the sources of its request out.

This module has no vendor's word: a Vocabulary has the names of the variables and paths. policy.py
decides which source wins and whether it is allowed, resolve.py what a name means on this host, and
mount_requests.py parses the mounts.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
from gpuhook.host.hot.settings import AUTO
from gpuhook.request import mount_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

MAX_NAMES = 4096
ANNOTATIONS, MOUNTS, ENV = "annotations", "mounts", "env"
# Variables of an orchestrator that replace the devices' variable; a legacy image.
RESOURCES, IMAGE = "resources", "image"
# Annotations that are not a grant; annotation_origin.py has their origin.
POD_ANNOTATIONS = "pod-annotations"
# Sources that a pod or an image chooses itself. Policy judges all of these alike.
OWN_CHOICE = (POD_ANNOTATIONS, RESOURCES, ENV, IMAGE)
_IMAGE_WORDS = frozenset(("all", "none"))


_MEMORY = ("_GPU_MEMORY_LIMIT", "_GPU_MEMORY_REQUEST")  # the ends of variables, after a vendor


class Vocabulary:
    """The variables, paths and kinds with which one vendor's containers request devices.

    An image with `image_version_env` and without
    `image_requirement_env` is a legacy image; a vendor without such images has "". The last three
    are for extra_requests.py: `extras` has for each variable how it is read, the kind that it
    requests and the device of that kind; `extra_mounts` has the kind of the ids in a directory
    below `mount_prefix`. `normalized(names, where)` returns the names of a request in the core's
    spelling, [] for none; a vendor without other spellings has None. `foreign_hooks` are the
    programs of the vendor's own prestart hooks, which give a container its devices. `example_node`
    is the path of a device's node, for messages.
    """

    devices_env: str
    capabilities_env: str
    mount_prefix: str
    default_kind: str
    example_node: str
    image_version_env: str
    image_requirement_env: str
    memory_request_env: str
    memory_limit_env: str
    extras: dict[str, tuple[str, str, str]]
    extra_mounts: dict[str, str]
    privileged_kinds: tuple[str, ...]
    normalized: Callable[[list[str], str], list[str]] | None = None
    foreign_hooks: tuple[str, ...] = ()
    # gpuhook's own, for the devices of any vendor.
    replicas_env = "GPUHOOK_REPLICAS"  # or a variable that begins so: replicas.py
    memory_prefix = "/var/run/gpuhook/memory"
    hints_env = "GPUHOOK_MEMORY_HINTS"

    def __init__(self, **words: Any) -> None:
        for name, value in words.items():
            setattr(self, name, value)


class Source:
    """One place that names devices: its kind, its exact location, and the names in order.

    Each name occurs once. `origin` is the origin of annotations, "" for another kind.
    """

    __slots__ = ("kind", "names", "origin", "where")

    def __init__(self, kind: str, where: str, names: list[str], origin: str = "") -> None:
        self.kind = kind
        self.where = where
        self.names = names
        self.origin = origin

    @property
    def is_grant(self) -> bool:
        """Whether the source requests devices for this very container.

        A variable with `all` (or `none`) does not: images set it and run on nodes without a GPU,
        and legacy images have no such variable at all. Every other source names devices of this
        node.
        """
        return self.kind not in (ENV, IMAGE) or not _IMAGE_WORDS.issuperset(self.names)


def variables(spec: dict[str, Any]) -> list[str]:
    """Return the entries of `process.env`, "NAME=value", without those that are not strings."""
    return fastjson.strings(spec, "process", "env")


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables of `process.env`; of duplicates the last wins, as in the container.

    Entries without '=' are skipped (they remain in config.json).
    """
    found = {}
    for entry in variables(spec):
        name, equals, value = entry.partition("=")
        if equals:
            found[name] = value
    return found


def limits_memory(spec: dict[str, Any]) -> bool:
    """Return whether mounts or variables of a spec may limit its memory of devices.

    The variables may be any vendor's. Most containers have neither, so this check is all that they
    cost.
    """
    if any(entry.partition("=")[0].endswith(_MEMORY) for entry in variables(spec)):
        return True
    below = Vocabulary.memory_prefix + "/"
    mounts = fastjson.objects(spec, "mounts")
    return any(str(mount.get("destination")).startswith(below) for mount in mounts)


def has_extras(spec: dict[str, Any], words: Vocabulary) -> bool:
    """Return whether a container may request devices in addition to GPUs, see extra_requests.py.

    Most containers do not, so this check is all that they cost.
    """
    if _has_variable(spec, tuple([name + "=" for name in words.extras])):
        return True
    mounts, directories = spec.get("mounts"), words.extra_mounts
    return any(
        next(mount_requests.below(mounts, f"{words.mount_prefix}/{one}"), "") for one in directories
    )


def _has_variable(spec: dict[str, Any], starts: tuple[str, ...]) -> bool:
    return any(entry.startswith(starts) for entry in variables(spec))


def names_of(text: str, where: str) -> list[str]:
    """Return the comma-separated names, each once; raises GH1004 and GH1005, which name `where`."""
    return _checked([part.strip() for part in text.split(",")], where)


def is_legacy(environment: Mapping[str, str], words: Vocabulary) -> bool:
    """Return whether variables are those of a legacy image, from before the devices' variable.

    Such an image requests every device and all driver capabilities.
    """
    version = words.image_version_env
    is_versioned = bool(version and environment.get(version))
    return is_versioned and not environment.get(words.image_requirement_env)


def sources(
    spec: dict[str, Any],
    words: Vocabulary,
    prefixes: list[str],
    resources: Sequence[str] = (),
    *,
    takes_legacy: bool = False,
    accept: str = AUTO,
) -> list[Source]:
    """Return every source that names devices, in the order of precedence; [] requests nothing.

    `prefixes` are those of the annotation keys that have CDI names. `resources` are variables that
    replace the devices' variable in a container that has any of them. With `takes_legacy`, a legacy
    image requests all devices. `accept` is request.acceptAnnotations.
    """
    granting, others = _from_annotations(spec, prefixes, accept)
    found = (
        granting,
        _from_mounts(spec, words),
        others,
        _from_variables(spec, words, resources, takes_legacy=takes_legacy),
    )
    return [source for source in found if source is not None]


def _from_annotations(
    spec: dict[str, Any], prefixes: list[str], accept: str
) -> tuple[Source | None, Source | None]:
    """Return (the annotations that are a grant, those that are not)."""
    annotations = spec.get("annotations")
    if not isinstance(annotations, dict):
        return None, None
    starts = tuple(prefixes)
    keys = sorted(
        key
        for key, value in annotations.items()
        if key.startswith(starts) and isinstance(value, str)
    )
    if not keys:
        return None, None
    from gpuhook.request import annotation_origin  # few containers have such an annotation

    origins = annotation_origin.origins(annotations, keys)
    grants = {key: annotation_origin.is_grant(origins[key], accept) for key in keys}
    return (
        _from_keys(ANNOTATIONS, annotations, [key for key in keys if grants[key]], origins),
        _from_keys(POD_ANNOTATIONS, annotations, [key for key in keys if not grants[key]], origins),
    )


def _from_keys(
    kind: str, annotations: dict[str, str], keys: list[str], origins: dict[str, str]
) -> Source | None:
    where = ", ".join(keys)
    names = names_of(",".join(annotations[key] for key in keys), "annotation " + where)
    origin = "; ".join(dict.fromkeys(origins[key] for key in keys))
    return Source(kind, where, names, origin) if names else None


def _from_mounts(spec: dict[str, Any], words: Vocabulary) -> Source | None:
    found, _ = mount_requests.names(spec.get("mounts"), words.mount_prefix, words.extra_mounts)
    where = words.mount_prefix.rstrip("/") + "/"
    names = _checked(found, "mounts below " + words.mount_prefix)
    return _source(MOUNTS, where, names, words)


def _from_variables(
    spec: dict[str, Any], words: Vocabulary, resources: Sequence[str], *, takes_legacy: bool
) -> Source | None:
    variables = environment(spec)
    present = [name for name in resources if name in variables]
    if present:
        return _from_environment(variables, RESOURCES, present, words)
    if words.devices_env in variables:
        return _from_environment(variables, ENV, [words.devices_env], words)
    if takes_legacy and is_legacy(variables, words):
        where = f"{words.image_version_env} without {words.image_requirement_env}"
        return Source(IMAGE, where, ["all"])
    return None


def _from_environment(
    variables: Mapping[str, str], kind: str, keys: Sequence[str], words: Vocabulary
) -> Source | None:
    where = ", ".join(keys)
    names = names_of(",".join(variables[key] for key in keys), "variable " + where)
    return _source(kind, where, names, words)


def _source(kind: str, where: str, names: list[str], words: Vocabulary) -> Source | None:
    """Return the source of names in a vendor's variables or mounts, None if they name nothing."""
    if words.normalized is not None:
        names = words.normalized(names, where)
    if not names or "void" in names:
        return None
    return Source(kind, where, ["all"] if "all" in names else names)


def _checked(parts: list[str], where: str) -> list[str]:
    """Return names, each once; GH1005 for too many of them, GH1004 for an invalid one."""
    names = [name for name in dict.fromkeys(parts) if name]
    if len(names) > MAX_NAMES:
        raise fault("GH1005", count=len(names), limit=MAX_NAMES, where=where)
    for name in names:
        if not name.isprintable() or len(name) > 255:
            raise fault("GH1004", name=name, where=where)
    return names
