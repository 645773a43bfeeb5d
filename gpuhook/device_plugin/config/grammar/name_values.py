# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that are names or numbers: resources, devices, XIDs, channels, addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.value_kinds import (
    UnfitError,
    ValueKind,
    shown,
    split,
    unfit,
)
from gpuhook.errors import printable
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOMAINS = tuple(vendor.domain + "/" for vendor in vendors())
VENDOR = DOMAINS[0]  # of names without a domain
LONGEST_NAME = 63  # of a resource with its prefix, as in NVIDIA's plugin; a label's limit, too
ALL = "all"
ALL_XIDS = "all"
MOST_DEVICES = 4096
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED = re.compile(r"[a-z0-9](?:[-_.a-z0-9]*[a-z0-9])?")  # what the API server accepts
_INDEX = re.compile(r"\d{1,6}(?::\d{1,6})?")
_MOST_XID = 10**6
_DEVICES = '"all", a count or a list'


@dataclass(frozen=True, slots=True)
class ResourceName(ValueKind):
    """The name of an extended resource; Configuration has it with the domain of its vendor.

    That of a name without one is nvidia.com, whose plugin accepts no "_" in a name.
    """

    metavar = "NAME"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise unfit("the name of a resource", value)
        domain = next((one for one in DOMAINS if value.startswith(one)), VENDOR)
        bare = value.removeprefix(domain)
        prefix, slash, _ = bare.partition("/")
        if slash and _SUBDOMAIN.fullmatch(prefix):
            raise UnfitError(
                f"is a resource of {printable(prefix, 80)}: only {' and '.join(DOMAINS)} "
                "resources can be offered",
                f"write {VENDOR}gpu, or gpu",
            )
        if len(domain + bare) > LONGEST_NAME:
            raise UnfitError(
                f"has {len(domain + bare)} characters with {domain}; at most {LONGEST_NAME}"
            )
        if not (_SUBDOMAIN if domain == VENDOR else _QUALIFIED).fullmatch(bare):
            raise UnfitError(
                f"incorrect format for a resource name: {shown(value)}",
                "use lower-case letters, digits, '-' and '.', as in nvidia.com/gpu",
            )
        return domain + bare

    def schema(self) -> dict[str, object]:
        others = "|".join(map(re.escape, DOMAINS[1:]))
        pattern = f"^(({re.escape(VENDOR)})?{_SUBDOMAIN.pattern}|({others}){_QUALIFIED.pattern})$"
        return {"type": "string", "pattern": pattern, "maxLength": LONGEST_NAME}


@dataclass(frozen=True, slots=True)
class Devices(ValueKind):
    """The devices of a resource: "all", a number (the first ones), or a list of names."""

    def parse(self, value: object) -> str | int | tuple[str, ...]:
        if value == ALL and isinstance(value, str):
            return ALL
        if isinstance(value, str):
            hint = f'for a single device, write a list: devices: ["{printable(value, 80)}"]'
            raise unfit(_DEVICES, value, hint)
        if isinstance(value, list):
            return _names(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise unfit(_DEVICES, value)
        if not 1 <= value <= MOST_DEVICES:
            raise unfit(f"1 to {MOST_DEVICES} as a count", value)
        return value

    def plain(self, value: Any) -> object:
        return list(value) if isinstance(value, tuple) else value

    def schema(self) -> dict[str, object]:
        count = {"type": "integer", "minimum": 1, "maximum": MOST_DEVICES}
        return {"anyOf": [{"const": ALL}, count, _NAMES_SCHEMA | {"minItems": 1}]}


@dataclass(frozen=True, slots=True)
class DeviceNames(ValueKind):
    """Devices by index, UUID, PCI bus id or model; the list may be empty."""

    metavar = "DEVICE[,...]"
    is_list = True

    def parse(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise unfit("a list", value)
        return _names(value) if value else ()

    def schema(self) -> dict[str, object]:
        return dict(_NAMES_SCHEMA)


@dataclass(frozen=True, slots=True)
class Xids(ValueKind):
    """A set of XIDs, or "all" if it `may_be_all`."""

    may_be_all: bool = False

    metavar = "XID[,...]"
    is_list = True
    has_numbers = True

    def parse(self, value: object) -> frozenset[int] | str:
        if self.may_be_all and value in ("all", "xids"):
            return ALL_XIDS
        if not isinstance(value, list):
            raise unfit("a list of XIDs" + (' or "all"' if self.may_be_all else ""), value)
        for index, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or not 0 < item < _MOST_XID:
                raise unfit("the number of an XID", item, index=index)
        return frozenset(value)

    def parse_text(self, text: str) -> frozenset[int] | str:
        words = split(text)
        if self.may_be_all and ("all" in words or "xids" in words):
            return ALL_XIDS
        xids: frozenset[int] | str = ValueKind.parse_text(self, text)
        return xids

    def well_formed(self, text: str) -> tuple[str, list[str]]:
        """Return the well-formed words of a text, and the other words."""
        words = split(text)
        malformed = [word for word in words if not _is_xid(word) and word not in ("all", "xids")]
        return ",".join(word for word in words if word not in malformed), malformed

    def plain(self, value: Any) -> object:
        return value if isinstance(value, str) else sorted(value)

    def schema(self) -> dict[str, object]:
        item = {"type": "integer", "minimum": 1, "maximum": _MOST_XID - 1}
        several: dict[str, object] = {"type": "array", "items": item}
        return {"anyOf": [several, {"enum": ["all", "xids"]}]} if self.may_be_all else several


@dataclass(frozen=True, slots=True)
class Channels(ValueKind):
    """IMEX channels: an empty list, or channel 0."""

    metavar = "[0]"
    is_list = True
    has_numbers = True

    def parse(self, value: object) -> tuple[int, ...]:
        if isinstance(value, list) and value in ([], [0]) and not any(v is False for v in value):
            return tuple(value)
        listed = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else shown(value)
        raise UnfitError(f"must be [] or [0], found {printable(listed, 40)}")

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": {"const": 0}, "maxItems": 1}


@dataclass(frozen=True, slots=True)
class Address(ValueKind):
    """An address to listen on, "127.0.0.1:9395", "[::1]:9395" or ":9395"; empty to not listen."""

    metavar = "HOST:PORT"

    def parse(self, value: object) -> str:
        if value == "":
            return ""
        if isinstance(value, str):
            match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9.-]*):(\d{1,5})", value)
            if match is not None and int(match[2]) < 65536:
                return value
        hint = "write it like 127.0.0.1:9395; an empty address disables the endpoint"
        raise unfit("an address with a port", value, hint)

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
    """Return whether a device name is an index, "0", or the index of a MIG instance, "0:1"."""
    return _INDEX.fullmatch(name) is not None


def _names(items: list[object]) -> tuple[str, ...]:
    """Return the distinct names of devices; raises UnfitError for an empty list."""
    if not items:
        raise UnfitError("lists no device", 'omit the key for all devices, or write "all"')
    names = []
    for index, item in enumerate(items):
        number = isinstance(item, int) and not isinstance(item, bool) and 0 <= item < MOST_DEVICES
        text = str(item).strip() if isinstance(item, str) or number else ""
        if not text or not text.isprintable():
            hint = 'write it like 0, "0:1", GPU-..., MIG-... or "Tesla T4"'
            raise unfit("an index, a UUID or a model", item, hint, index)
        names.append(text)
    return tuple(dict.fromkeys(names))


def _is_xid(word: str) -> bool:
    return re.fullmatch(r"[0-9]{1,6}", word) is not None and int(word) > 0
