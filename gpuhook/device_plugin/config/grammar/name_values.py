# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that name things: resources, devices, XIDs, addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.value_kinds import UnfitError, ValueKind, shown, split
from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VENDOR = "nvidia.com/"
LONGEST_NAME = 63  # of a resource, with its prefix: the reference's limit, and a label's
ALL = "all"
ALL_XIDS = "all"
MOST_DEVICES = 4096
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_INDEX = re.compile(r"\d{1,6}(?::\d{1,6})?")
_MOST_XID = 10**6


@dataclass(frozen=True, slots=True)
class ResourceName(ValueKind):
    """The name of an extended resource; what Configuration holds has the prefix nvidia.com/."""

    @property
    def metavar(self) -> str:
        return "NAME"

    def of(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise UnfitError(f"must be the name of a resource, found {shown(value)}")
        bare = value.removeprefix(VENDOR)
        prefix, slash, _ = bare.partition("/")
        if slash and _SUBDOMAIN.fullmatch(prefix):
            raise UnfitError(
                f"is a resource of {printable(prefix, 80)}: only those of {VENDOR} can be offered",
                f"write {VENDOR}gpu, or gpu",
            )
        if len(VENDOR + bare) > LONGEST_NAME:
            raise UnfitError(
                f"is {len(VENDOR + bare)} characters long with {VENDOR}, {LONGEST_NAME} is the most"
            )
        if not _SUBDOMAIN.fullmatch(bare):
            raise UnfitError(
                f"incorrect format for a resource name: {shown(value)}",
                "a name has lower-case letters, digits, '-' and '.', as nvidia.com/gpu has",
            )
        return VENDOR + bare

    def schema(self) -> dict[str, object]:
        pattern = f"^({re.escape(VENDOR)})?{_SUBDOMAIN.pattern}$"
        return {"type": "string", "pattern": pattern, "maxLength": LONGEST_NAME}


@dataclass(frozen=True, slots=True)
class Devices(ValueKind):
    """Which devices of a resource: "all", how many of the first, or a list of their names."""

    def of(self, value: object) -> str | int | tuple[str, ...]:
        if value == ALL and isinstance(value, str):
            return ALL
        if isinstance(value, str):
            raise UnfitError(
                f'must be "all", a count or a list, found {shown(value)}',
                f'one device is a list of one: devices: ["{printable(value, 80)}"]',
            )
        if isinstance(value, list):
            return _names(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnfitError(f'must be "all", a count or a list, found {shown(value)}')
        if not 1 <= value <= MOST_DEVICES:
            raise UnfitError(f"must be 1 to {MOST_DEVICES} as a count, found {shown(value)}")
        return value

    def plain(self, value: Any) -> object:
        return list(value) if isinstance(value, tuple) else value

    def schema(self) -> dict[str, object]:
        count = {"type": "integer", "minimum": 1, "maximum": MOST_DEVICES}
        return {"anyOf": [{"const": ALL}, count, _NAMES_SCHEMA | {"minItems": 1}]}


@dataclass(frozen=True, slots=True)
class DeviceNames(ValueKind):
    """Devices by index, UUID, PCI bus id or model; also none of them."""

    @property
    def metavar(self) -> str:
        return "DEVICE[,...]"

    def of(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise UnfitError(f"must be a list, found {shown(value)}")
        return _names(value) if value else ()

    def of_text(self, text: str) -> tuple[str, ...]:
        return self.of(split(text))

    def plain(self, value: Any) -> object:
        return list(value)

    def schema(self) -> dict[str, object]:
        return dict(_NAMES_SCHEMA)


@dataclass(frozen=True, slots=True)
class Xids(ValueKind):
    """A set of XIDs; "all" of them, too, where `may_be_all`."""

    may_be_all: bool = False

    @property
    def metavar(self) -> str:
        return "XID[,...]"

    def of(self, value: object) -> frozenset[int] | str:
        if self.may_be_all and value in ("all", "xids"):
            return ALL_XIDS
        if not isinstance(value, list):
            also = ' or "all"' if self.may_be_all else ""
            raise UnfitError(f"must be a list of XIDs{also}, found {shown(value)}")
        for index, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or not 0 < item < _MOST_XID:
                raise UnfitError(f"must be the number of an XID, found {shown(item)}", index=index)
        return frozenset(value)

    def of_text(self, text: str) -> frozenset[int] | str:
        words = split(text)
        if self.may_be_all and ("all" in words or "xids" in words):
            return ALL_XIDS
        return self.of([_number(word) for word in words])

    def of_some(self, text: str) -> tuple[frozenset[int] | str, list[str]]:
        """Return what the well-formed words of a text say, and the other words."""
        words = split(text)
        wrong = [word for word in words if not _is_xid(word) and word not in ("all", "xids")]
        return self.of_text(",".join(word for word in words if word not in wrong)), wrong

    def plain(self, value: Any) -> object:
        return value if isinstance(value, str) else sorted(value)

    def schema(self) -> dict[str, object]:
        item = {"type": "integer", "minimum": 1, "maximum": _MOST_XID - 1}
        several: dict[str, object] = {"type": "array", "items": item}
        return {"anyOf": [several, {"enum": ["all", "xids"]}]} if self.may_be_all else several


@dataclass(frozen=True, slots=True)
class Channels(ValueKind):
    """IMEX channels: none, or channel 0."""

    @property
    def metavar(self) -> str:
        return "[0]"

    def of(self, value: object) -> tuple[int, ...]:
        if isinstance(value, list) and value in ([], [0]) and not any(v is False for v in value):
            return tuple(value)
        listed = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else shown(value)
        raise UnfitError(f"must be [] or [0], found {printable(listed, 40)}")

    def of_text(self, text: str) -> tuple[int, ...]:
        return self.of([_number(word) for word in split(text)])

    def plain(self, value: Any) -> object:
        return list(value)

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": {"const": 0}, "maxItems": 1}


@dataclass(frozen=True, slots=True)
class Address(ValueKind):
    """Where something listens: "127.0.0.1:9395", "[::1]:9395", ":9395"; empty for nowhere."""

    @property
    def metavar(self) -> str:
        return "HOST:PORT"

    def of(self, value: object) -> str:
        if value == "":
            return ""
        if isinstance(value, str):
            match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9.-]*):(\d{1,5})", value)
            if match is not None and int(match[2]) < 65536:
                return value
        raise UnfitError(
            f"must be an address with a port, found {shown(value)}",
            "write it like 127.0.0.1:9395; an empty one turns the endpoint off",
        )

    def schema(self) -> dict[str, object]:
        return {
            "type": "string",
            "pattern": r"^$|^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9.-]*):[0-9]{1,5}$",
        }


_NAMES_SCHEMA: dict[str, object] = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}]},
}


def is_index(name: str) -> bool:
    """Return whether the name of a device is an index, "0", or that of a MIG instance, "0:1"."""
    return _INDEX.fullmatch(name) is not None


def _names(items: list[object]) -> tuple[str, ...]:
    """Return the names of devices, each once."""
    if not items:
        raise UnfitError("lists no device", 'leave it away for all devices, or write "all"')
    names = []
    for index, item in enumerate(items):
        number = isinstance(item, int) and not isinstance(item, bool) and 0 <= item < MOST_DEVICES
        text = str(item).strip() if isinstance(item, str) or number else ""
        if not text or not text.isprintable():
            raise UnfitError(
                f"must be an index, a UUID or a model, found {shown(item)}",
                'write it like 0, "0:1", GPU-..., MIG-... or "Tesla T4"',
                index,
            )
        names.append(text)
    return tuple(dict.fromkeys(names))


def _is_xid(word: str) -> bool:
    return re.fullmatch(r"[0-9]{1,6}", word) is not None and int(word) > 0


def _number(word: str) -> int | str:
    return int(word) if re.fullmatch(r"-?[0-9]{1,9}", word) else word
