# SPDX-License-Identifier: Apache-2.0
"""A config.json as the runtimes read it; keys that they read differently are refused."""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# The kind of value of each key of a config.json that is read or written. _OBJECT is an object with
# keys of the user, _ANY is not checked. A list has objects with these keys; the runtime checks
# items that are not objects, and numbers in place of strings.
_ANY, _OBJECT, _ARRAY, _STRING = "anything", "an object", "an array", "a string or a number"
_WANTED: dict[type, str] = {dict: _OBJECT, list: _ARRAY}
_MAPPINGS = {"uidMappings": _ARRAY, "gidMappings": _ARRAY}
_HOOKS = [{"path": _STRING, "args": _ARRAY, "env": _ARRAY, "timeout": _ANY}]
_DEVICE = {"path": _STRING, "fileMode": _ANY, "uid": _ANY, "gid": _ANY}
_NUMBERS = {"type": _STRING, "major": _ANY, "minor": _ANY}
_KEYS: dict[str, Any] = {
    "process": {
        "env": _ARRAY,
        "user": {"uid": _ANY, "gid": _ANY, "additionalGids": _ARRAY},
        "capabilities": {"bounding": _ARRAY},
    },
    "root": {"path": _STRING, "readonly": _ANY},
    "mounts": [
        {"destination": _STRING, "source": _STRING, "type": _STRING, "options": _ARRAY, **_MAPPINGS}
    ],
    "hooks": {
        "prestart": _HOOKS,
        "createRuntime": _HOOKS,
        "createContainer": _HOOKS,
        "startContainer": _HOOKS,
        "poststart": _HOOKS,
        "poststop": _HOOKS,
    },
    "annotations": _OBJECT,
    "linux": {
        "devices": [{**_DEVICE, **_NUMBERS}],
        "resources": {"devices": [{"allow": _ANY, "access": _STRING, **_NUMBERS}]},
        "namespaces": [{"type": _STRING, "path": _STRING}],
        "cgroupsPath": _STRING,
        "intelRdt": _OBJECT,
        "netDevices": _OBJECT,
        **_MAPPINGS,
    },
}


_NUL = b"\\u0000"  # as JSON writes it; it may also be `\\u0000` after a backslash


class Config(dict):  # type: ignore[type-arg] # Any is not imported
    """A config.json. `repeated` are keys that one of its objects has twice, `raw` is its text."""

    __slots__ = ("raw", "repeated")

    raw: bytes
    repeated: list[str]


def parsed(path: str, raw: bytes) -> Config:
    """Return the spec in `raw`, the content of `path`; GH1301 if it is not a spec."""
    repeated: list[str] = []
    try:
        spec = fastjson.loads(raw, exact=True, repeated=repeated)
    except ValueError as error:
        raise fault("GH1301", path=path, reason=error) from error
    if not isinstance(spec, dict):
        raise fault("GH1301", path=path, reason="it is not a JSON object")
    found = Config(spec)
    found.raw, found.repeated = raw, repeated
    return found


def require_unambiguous(spec: dict[str, Any]) -> None:
    """Raise GH1307, GH1308 for a spec that runtimes read differently, GH1303 for an unusable one.

    runc decodes with Go's encoding/json: keys that differ only in case are one key, and the values
    of a repeated key are merged. For crun they are two keys, and the first value applies. A text
    ends at a NUL for crun, also a key.
    """
    if isinstance(spec, Config):
        if spec.repeated:
            raise fault("GH1307", what=f"the key {spec.repeated[0]} twice")
        if _NUL in spec.raw:
            _require_no_nul(spec)
    _check(spec, _KEYS)


def _check(found: dict[str, Any], known: dict[str, Any]) -> None:
    """Check an object and the values of its `known` keys; null is of every kind."""
    unknown = found.keys() - known.keys()
    if unknown:
        _check_names(unknown, known)
    for key, value in found.items():
        kind = known.get(key, _ANY)
        if kind is _ANY or value is None:
            continue
        wanted = _WANTED.get(type(kind)) or kind
        if wanted is _STRING:
            is_wrong = isinstance(value, (dict, list))
        else:
            is_wrong = not isinstance(value, list if wanted is _ARRAY else dict)
        if is_wrong:
            raise fault("GH1303", key=key, kind=wanted)
        if kind is wanted:
            continue
        for one in value if wanted is _ARRAY else (value,):
            if isinstance(one, dict):
                _check(one, kind[0] if wanted is _ARRAY else kind)


def _require_no_nul(spec: dict[str, Any]) -> None:
    """Raise GH1308 for a text with a NUL, at any depth."""
    left: list[Any] = [spec]
    for value in left:
        if isinstance(value, str):
            if "\0" in value:
                raise fault("GH1308", text=repr(value))
        elif isinstance(value, dict):
            left.extend(value)
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _check_names(names: Iterable[str], known: dict[str, Any]) -> None:
    """Raise GH1307 for one of `names` that Go reads as a known one."""
    lower = {one.lower(): one for one in known}
    for name in names:
        # Go folds two characters outside ASCII into it: this one, and one that lower() folds too.
        other = lower.get(name.lower().replace("\u017f", "s"))
        if other is not None:
            raise fault("GH1307", what=f"the keys {name} and {other}")
