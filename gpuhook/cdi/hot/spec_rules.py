# SPDX-License-Identifier: Apache-2.0
"""The rules of a CDI spec: fields, types, values, and the version that they need.

Source: CDI SPEC.md and the validation of its reference library (with strict decoding: an unknown
field is an error). null means absent, as there.
"""

from __future__ import annotations

from gpuhook.cdi.hot import names, spec_versions
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

HOOK_NAMES = (
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
)  # fmt: skip

# Shapes: "text", "count" (an integer >= 0), "integer", "flag", "texts" (a map of strings),
# [shape] for a list, a dict for an object with exactly these fields.
_DEVICE_NODE = {
    "path": "text", "hostPath": "text", "type": "text", "major": "integer", "minor": "integer",
    "fileMode": "count", "permissions": "text", "uid": "count", "gid": "count",
}  # fmt: skip
_MOUNT = {"hostPath": "text", "containerPath": "text", "type": "text", "options": ["text"]}
_HOOK = {
    "hookName": "text", "path": "text", "args": ["text"], "env": ["text"], "timeout": "integer",
}  # fmt: skip
_INTEL_RDT = {
    "closID": "text", "l3CacheSchema": "text", "memBwSchema": "text", "schemata": ["text"],
    "enableCMT": "flag", "enableMBM": "flag", "enableMonitoring": "flag",
}  # fmt: skip
_EDITS = {
    "env": ["text"], "deviceNodes": [_DEVICE_NODE], "mounts": [_MOUNT], "hooks": [_HOOK],
    "additionalGids": ["count"], "intelRdt": _INTEL_RDT,
    "netDevices": [{"hostInterfaceName": "text", "name": "text"}],
}  # fmt: skip
_SPEC = {
    "cdiVersion": "text", "kind": "text", "annotations": "texts", "containerEdits": _EDITS,
    "devices": [{"name": "text", "annotations": "texts", "containerEdits": _EDITS}],
}  # fmt: skip
_NAMES = {"text": "a string", "count": "an integer that is at least 0", "integer": "an integer",
          "flag": "true or false", "texts": "an object of strings"}  # fmt: skip
_MAX_ANNOTATIONS = 256 << 10  # bytes; Kubernetes' bound, which CDI took over


class _BrokenRuleError(Exception):
    """A broken rule: the JSON pointer of the value and the reason."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(reason)
        self.pointer = pointer
        self.reason = reason


def check(spec: object, where: str) -> None:
    """Raise the fault of the first rule that the spec of the file `where` breaks.

    GH1106 names file, JSON pointer and reason; GH1107 is an unknown newer version, GH1108 a version
    that is too low for the content.
    """
    try:
        if isinstance(spec, dict):
            _check_version(spec, where)
        _shape(spec, _SPEC, "")
        assert isinstance(spec, dict)  # noqa: S101  # _shape has checked it
        _check_spec(spec)
    except _BrokenRuleError as problem:
        pointer = problem.pointer or "/"
        raise fault("GH1106", path=where, pointer=pointer, reason=problem.reason) from None
    declared = spec["cdiVersion"]
    needed, reason = spec_versions.needed(spec)
    order = spec_versions.VERSIONS
    if order.index(declared) < order.index(needed):
        raise fault("GH1108", path=where, version=declared, reason=reason, needed=needed)


def _check_version(spec: dict[str, Any], where: str) -> None:
    version = spec.get("cdiVersion")
    if not version:
        raise _BrokenRuleError("/cdiVersion", "missing")
    if not isinstance(version, str):
        raise _BrokenRuleError("/cdiVersion", "not a string")
    if version in spec_versions.VERSIONS:
        return
    if spec_versions.is_newer(version):
        raise fault("GH1107", path=where, version=version, newest=spec_versions.NEWEST)
    raise _BrokenRuleError("/cdiVersion", f"{version!r} is not a version of CDI")


def _shape(value: object, shape: Any, pointer: str) -> None:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _BrokenRuleError(pointer, "not an object")
        for key, item in value.items():
            inner = f"{pointer}/{_token(key)}"
            if key not in shape:
                raise _BrokenRuleError(inner, f"unknown field; known are {', '.join(shape)}")
            if item is not None:
                _shape(item, shape[key], inner)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _BrokenRuleError(pointer, "not a list")
        for position, item in enumerate(value):
            _shape(item, shape[0], f"{pointer}/{position}")
    else:
        _scalar(value, shape, pointer)


def _scalar(value: object, shape: str, pointer: str) -> None:
    if not _SCALARS[shape](value):
        raise _BrokenRuleError(pointer, "not " + _NAMES[shape])
    if isinstance(value, str) and not names.is_text(value):
        raise _BrokenRuleError(pointer, "it has a NUL or half a character")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SCALARS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "count": lambda value: _is_integer(value) and 0 <= value < 1 << 32,
    "integer": lambda value: _is_integer(value) and -(1 << 63) <= value < 1 << 63,
    "flag": lambda value: isinstance(value, bool),
    "texts": lambda value: (
        isinstance(value, dict)
        and all(isinstance(text, str) for pair in value.items() for text in pair)
    ),
}


def _token(key: object) -> str:
    """Return `key` as a token of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _check_spec(spec: dict[str, Any]) -> None:
    if not names.is_kind(spec.get("kind") or ""):
        raise _BrokenRuleError("/kind", f"{spec.get('kind')!r} is not vendor/class")
    _check_annotations(spec.get("annotations") or {}, "/annotations")
    _check_edits(spec.get("containerEdits") or {}, "/containerEdits")
    devices = spec.get("devices")
    if not devices:
        raise _BrokenRuleError("/devices", "a spec must describe at least one device")
    seen: dict[str, int] = {}
    for position, device in enumerate(devices):
        pointer = f"/devices/{position}"
        name = device.get("name") or ""
        if not names.is_device(name):
            raise _BrokenRuleError(pointer + "/name", f"{name!r} is not a device name")
        if name in seen:
            raise _BrokenRuleError(pointer + "/name", f"{name!r} is also /devices/{seen[name]}")
        seen[name] = position
        _check_annotations(device.get("annotations") or {}, pointer + "/annotations")
        edits = device.get("containerEdits") or {}
        if not any(edits.values()):
            raise _BrokenRuleError(pointer + "/containerEdits", "a device needs at least one edit")
        _check_edits(edits, pointer + "/containerEdits")


def _check_annotations(annotations: dict[str, str], pointer: str) -> None:
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        raise _BrokenRuleError(pointer, f"larger than {_MAX_ANNOTATIONS} bytes")
    for key in annotations:
        prefix, slash, name = key.rpartition("/")
        proper = name.replace("_", "-").replace(".", "-")
        fits = len(name) <= 63 and names.is_device(proper) and ":" not in name
        if not fits or (slash and not 0 < len(prefix) <= 253):
            raise _BrokenRuleError(f"{pointer}/{_token(key)}", "not a valid annotation key")


def _check_edits(edits: dict[str, Any], pointer: str) -> None:
    _check_env(edits.get("env"), pointer + "/env")
    for inner, node in _items(edits, "deviceNodes", pointer):
        _check_device_node(node, inner)
    for inner, mount in _items(edits, "mounts", pointer):
        _required(mount, "hostPath", inner)
        _required(mount, "containerPath", inner)
    for inner, hook in _items(edits, "hooks", pointer):
        _required(hook, "path", inner)
        if hook.get("hookName") not in HOOK_NAMES:
            raise _BrokenRuleError(inner + "/hookName", "not one of " + ", ".join(HOOK_NAMES))
        _check_env(hook.get("env"), inner + "/env")
    for inner, device in _items(edits, "netDevices", pointer):
        _required(device, "hostInterfaceName", inner)
        _required(device, "name", inner)
    clos = (edits.get("intelRdt") or {}).get("closID")
    if clos and (clos in (".", "..") or len(clos) >= 4096 or "/" in clos or "\n" in clos):
        raise _BrokenRuleError(pointer + "/intelRdt/closID", "not a directory name")


def _items(edits: dict[str, Any], key: str, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for position, item in enumerate(edits.get(key) or ()):
        yield f"{pointer}/{key}/{position}", item


def _required(item: dict[str, Any], key: str, pointer: str) -> None:
    if not item.get(key):
        raise _BrokenRuleError(f"{pointer}/{key}", "missing or empty")


def _check_env(env: list[str] | None, pointer: str) -> None:
    for position, entry in enumerate(env or ()):
        if entry.find("=") < 1:
            raise _BrokenRuleError(f"{pointer}/{position}", f"{entry!r} is not NAME=value")


def _check_device_node(node: dict[str, Any], pointer: str) -> None:
    _required(node, "path", pointer)
    if (node.get("type") or "") not in ("", "b", "c", "u", "p"):
        raise _BrokenRuleError(pointer + "/type", "not one of b, c, u, p")
    if not frozenset("rwm").issuperset(node.get("permissions") or ""):
        raise _BrokenRuleError(pointer + "/permissions", "may hold only r, w and m")
