# SPDX-License-Identifier: Apache-2.0
"""The vendors whose GPUs a call of generate-cdi describes, and the file of each."""

from __future__ import annotations

import os

from click.core import ParameterSource

from gpuhook.cdi.hot import names
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console
from gpuhook.vendors.catalogue import further_absences, vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import click

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

AUTO = "auto"


def is_kind(vendor: str | None) -> bool:
    """Return whether a value of --vendor is the vendor of a kind, "example.com"."""
    return vendor is not None and vendor not in (AUTO, *(one.name for one in vendors()))


def vendors_of(ctx: click.Context, options: Mapping[str, Any]) -> list[Vendor]:
    """Return the vendors whose GPUs a call describes, at least one.

    --vendor names a vendor or the vendor of the kind; without it, and for `auto`, they are those
    with GPUs on the node to which all options of the command line apply. The context's `obj` is the
    name of the only possible vendor, if it is set. Raises GH1520, and GH1522 for a mistyped vendor.
    """
    given = options["vendor"]
    every = vendors()
    named = [one for one in every if given in (one.name, one.domain)]
    if not named and is_kind(given):
        _require_meant(given, options["device_class"])
        named = [one for one in every if "device_class" in one.own_options]
    if named:
        _require_applicable(ctx, named[0])
        return named[:1]
    fitting = [one for one in every if ctx.obj in (None, one.name) and not _unfit(ctx, one)]
    if not fitting:
        owned = [_named(ctx, one.own_options)[:1] for one in reversed(every)]
        both = " and ".join(option for options_ in owned for option in options_)
        raise fault("GH1520", options=both, reason="they apply to GPUs of different vendors")
    place = options["host_root"], options["inventory"]
    found = [one for one in fitting if _has_gpus(one, *place)]
    for reason in () if found or options["inventory"] else further_absences(place[0]):
        console.note(reason)  # the fault below is the first vendor's
    return found or fitting[:1]


def _require_meant(given: str, device_class: str | None) -> None:
    """Raise GH1522 for a word that is probably meant as the name of a vendor.

    The vendor of a kind is a domain by convention. With --class, any other word is one, too.
    """
    if "." not in given and device_class is None and names.is_kind(f"{given}/x"):
        known = ", ".join((AUTO, *(one.name for one in vendors())))
        raise fault("GH1522", value=given, known=known)


def _has_gpus(vendor: Vendor, host_root: str, inventory: str | None) -> bool:
    try:
        return not vendor.absence(host_root, inventory)
    except (GpuhookError, OSError):
        return False  # describing the first vendor's GPUs reports it


def _require_applicable(ctx: click.Context, vendor: Vendor) -> None:
    """Raise GH1520 for an option of the command line that does not apply to a vendor's GPUs."""
    for option in _unfit(ctx, vendor):
        both = f"{option} and --vendor {ctx.params['vendor']}"
        raise fault(
            "GH1520", options=both, reason=f"{option} does not apply to {vendor.title} GPUs"
        )


def _unfit(ctx: click.Context, vendor: Vendor) -> list[str]:
    """Return the options of the command line that only the specs of other vendors have."""
    others = (one.own_options for one in vendors())
    return _named(ctx, frozenset().union(*others) - vendor.own_options)


def _named(ctx: click.Context, names: frozenset[str]) -> list[str]:
    """Return those of the options `names` that are on the command line."""
    return [
        max(one.opts, key=len)
        for one in ctx.command.params
        if one.name in names and ctx.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    ]


def files(output: str | None, chosen: Sequence[Vendor]) -> dict[str, str | None]:
    """Return the file of each vendor's spec, None for standard output.

    `output` is that of the vendor in its name, else of the first one; those of the others have the
    names of the vendors.
    """
    if output is None:
        return {one.name: None for one in chosen}
    directory, name = os.path.split(output)
    stem, extension = os.path.splitext(name)
    owner = next((one for one in chosen if one.name == stem), chosen[0])
    return {
        one.name: output if one is owner else os.path.join(directory, one.name + extension)
        for one in chosen
    }
