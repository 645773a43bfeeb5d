# SPDX-License-Identifier: Apache-2.0
"""The spellings of AMD devices in requests, and what is wrong with others. Pure text.

The grammar is that of AMD's container runtime (AMD_VISIBLE_DEVICES: indices, inclusive ranges,
unique ids), with PCI addresses, partitions (`i:j`, amdgpu_xcp_N) and replicas in addition. AMD's
runtime skips an item that it cannot use, so that a typing error starts a container without a GPU;
here every such item is an unknown device, and advice() has the reason.
"""

from __future__ import annotations

from gpuhook.errors import fault, printable
from gpuhook.vendors.amd.hot import amd_sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

UUID = "GPU-"
_ALL, _NOTHING = "all", ("none", "void")
_SLICE = "-slice-"  # replicas in a fork of AMD's device plugin
_HEX = frozenset("0123456789abcdef")
_UUID_DIGITS = 16
_LEAST_BARE = 9  # hex digits of a unique id without 0x: fewer are an index
_MAX_DIGITS = 9  # of an index
_MAX_RANGE = 4096  # devices


def normalized(names: list[str], where: str) -> list[str]:
    """Return requested names with `all` and replicas in the core's spelling; [] for `none`.

    Raises GH2510 for `all`, `none` or `void` among other names: AMD's runtime ignores the word.
    """
    found = list(dict.fromkeys(_word(name) for name in names))
    for word in (_ALL, *_NOTHING):
        if word in found and len(found) > 1:
            raise fault("GH2510", where=where, word=word)
    return [] if found and found[0] in _NOTHING else found


def _word(name: str) -> str:
    if name in ("All", "ALL"):
        return _ALL
    device, found, number = name.rpartition(_SLICE)
    return f"{device}::{number}" if found and device and _is_decimal(number) else name


def spellings(name: str) -> list[str]:
    """Return the names in a CDI spec that a name can mean, the most likely one first."""
    lower = name.lower()
    index = _index(name)
    first, colon, second = name.partition(":")
    ends = (_index(first), _index(second)) if colon else (None, None)
    found = [
        None if index is None else str(index),
        None if None in ends else f"{ends[0]}:{ends[1]}",
        _uuid(lower),
        _pci_address(lower),
        amd_sysfs.partition_id(lower),
    ]
    return [one for one in found if one is not None]


def expanded(name: str) -> list[str]:
    """Return the indices of the range `first-last`, [] for a name that is none."""
    ends = _ends(name)
    if ends is None or not ends[0] <= ends[1] < ends[0] + _MAX_RANGE:
        return []
    return [str(index) for index in range(ends[0], ends[1] + 1)]


def advice(name: str, known: Iterable[str]) -> str:
    """Return the probable error in a name that no device has, with the number of devices.

    `known` are the names in the node's CDI specs.
    """
    count = len([one for one in known if _is_decimal(one)])
    there = f"the CDI specs have {count} devices" + (f", 0 to {count - 1}" if count else "")
    return f"{_error(name, count)}; {there}".removeprefix("; ")


def _error(name: str, count: int) -> str:  # noqa: PLR0911 # one return for each error
    shown, ends = printable(name), _ends(name)
    if "$" in name:
        return f"{shown} is a variable that was not expanded: write the value itself"
    parts = name.replace(";", " ").split()
    if len(parts) > 1:
        return f"separate devices by commas: {printable(','.join(parts))}"
    if name.lower() == _ALL:
        return f"{shown} is not `all`: write it in lower case"
    if ends is not None and ends[0] > ends[1]:
        return f"the range {shown} runs backwards: write {ends[1]}-{ends[0]}"
    if ends is not None:
        return f"the range {shown} ends after the last device" if count else ""
    if name == "-1" or (len(name) > 1 and _is_decimal(name.strip("-")) and "-" in name):
        return f"{shown} is not a range: write first-last, or none for no GPU"
    if name.startswith(UUID) and len(name) < len(UUID) + _UUID_DIGITS:
        return f"{shown} is too short: write the {_UUID_DIGITS} hex digits of the unique id"
    return ""


def _ends(name: str) -> tuple[int, int] | None:
    """Return the indices at the ends of a range, None for another text."""
    first, _, last = name.partition("-")
    start, end = _index(first), _index(last)
    return None if start is None or end is None else (start, end)


def _index(text: str) -> int | None:
    """Return an index, which AMD's runtime accepts with a plus sign and with leading zeros."""
    digits = text[1:] if text[:1] == "+" else text
    return int(digits) if _is_decimal(digits) and len(digits) <= _MAX_DIGITS else None


def _uuid(lower: str) -> str | None:
    """Return GPU-<16 hex digits> for a unique id: 0x or at least nine digits, padded or not."""
    if lower.startswith(UUID.lower()):
        digits = lower[len(UUID) :]
        is_one = len(digits) == _UUID_DIGITS
    else:
        digits = lower.removeprefix("0x")
        is_one = digits != lower or len(digits) >= _LEAST_BARE
    significant = digits.lstrip("0")
    if not is_one or not digits or not _HEX.issuperset(digits):
        return None
    return UUID + significant.zfill(_UUID_DIGITS) if len(significant) <= _UUID_DIGITS else None


def _pci_address(lower: str) -> str | None:
    """Return the PCI address as the kernel writes it, for one with or without its domain."""
    rest, _, function = lower.rpartition(".")
    parts = rest.split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    if len(parts) != 3 or len(function) != 1 or function not in "01234567":
        return None
    domain, bus, device = parts
    is_hex = bool(domain) and _HEX.issuperset(domain + bus + device)
    if not is_hex or (len(bus), len(device)) != (2, 2) or len(domain) > 8:
        return None
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()
