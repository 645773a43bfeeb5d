# SPDX-License-Identifier: Apache-2.0
"""Short forms of device names, and advice on unknown names.

Loaded only for a name that is in neither a CDI spec nor node.json, so an exact name always wins
over a short form. A short form is expanded as text: the full names are resolved and checked as if
the container had requested them.
"""

from __future__ import annotations

from gpuhook.errors import fault, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TYPES = ("gpu-", "mig-")
_HEX = frozenset("0123456789abcdef")
_LEAST = 8  # hex digits of a UUID: as many as `gpuhook ps` prints
_MAX_RANGE = 4096  # indices
_MAX_DIGITS = 9  # of an index
_SHOWN = 8


def full_names(name: str, known: Callable[[], Iterable[str]]) -> list[str]:
    """Return the full names of a short form, [] for a name that is not a short form.

    `known` returns the names of the node's devices; of two that differ in case only, the last one
    is used. Raises GH1060 if more than one UUID begins with `name`.
    """
    lower = name.lower()
    if lower.startswith(_TYPES):
        return _with_beginning(name, known) if _is_beginning(lower[4:]) else []
    if _is_decimal(name):
        index = name.lstrip("0") or "0"
        return [] if index == name else [index]
    return _range(name) or ([f"0000:{lower}"] if _is_slot(lower) else [])


def _with_beginning(name: str, known: Callable[[], Iterable[str]]) -> list[str]:
    lower = name.lower()
    found = {one.lower(): one for one in known() if one.lower().startswith(lower)}
    # node.json has names in lower case: NVML writes the type in upper case.
    uuids = [one[:4].upper() + one[4:] if one == key else one for key, one in found.items()]
    if len(uuids) > 1:
        listed = ", ".join(sorted(uuids)[:_SHOWN]) + (", ..." if len(uuids) > _SHOWN else "")
        raise fault("GH1060", name=name, uuids=listed)
    return uuids


def _is_beginning(rest: str) -> bool:
    """Return whether a text, which follows the type, is the beginning of a UUID in lower case."""
    digits = rest[:_LEAST]
    return (
        len(digits) == _LEAST and _HEX.issuperset(digits) and _HEX.issuperset(rest.replace("-", ""))
    )


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _range(name: str) -> list[str]:
    """Return the indices of `first-last`, [] for another text. Neither end has leading zeros."""
    first, _, last = name.partition("-")
    if not all(_is_index(end) for end in (first, last)):
        return []
    start, end = int(first), int(last)
    is_range = start < end < start + _MAX_RANGE
    return [str(index) for index in range(start, end + 1)] if is_range else []


def _is_index(text: str) -> bool:
    is_plain = text == "0" or not text.startswith("0")
    return is_plain and _is_decimal(text) and len(text) <= _MAX_DIGITS


def _is_slot(lower: str) -> bool:
    """Return whether a text is a PCI bus id without its domain, `1a:00.0`, in lower case."""
    bus, _, rest = lower.partition(":")
    device, _, function = rest.partition(".")
    sizes = (len(bus), len(device), len(function))
    return sizes == (2, 2, 1) and _HEX.issuperset(bus + device) and function in "01234567"


def advice(name: str, where: str, known: Iterable[str]) -> str:
    """Return the probable error in an unknown name, "" if there is no known one.

    `where` names the container's source of the name, "" for an option of a command: options do not
    have `void`. `known` are the names of the node's devices.
    """
    if "$" in name:
        return f"{printable(name)} is a variable that was not expanded: write the value itself"
    parts = name.replace(";", " ").split()
    if len(parts) > 1:
        return f"separate devices by commas: {printable(','.join(parts))}"
    if name == "-1" and where:
        return "to request no GPU, write void"
    if _is_mig(name.lower()) and not any(_is_mig(one.lower()) for one in known):
        return f"{printable(name)} names a MIG device, but this node has none"
    return ""


def _is_mig(lower: str) -> bool:
    if lower.startswith("mig-"):
        return True
    first, colon, second = lower[3 if lower.startswith("mig") else 0 :].partition(":")
    return bool(colon) and _is_decimal(first) and _is_decimal(second)
