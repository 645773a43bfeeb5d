# SPDX-License-Identifier: Apache-2.0
"""Writes CDI specs and their compiled forms."""

from __future__ import annotations

import os

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.hot import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.vendors.spec_call import DescribedSpecs

_SHOWN = 24  # device names: eight GPUs by index and UUID, and `all`


def format_of(output: str | None, fmt: str | None) -> str:
    """Return the format to write; GH1514 if engines would not read the file, or misread it.

    `output` is None for standard output; `fmt` is the value of --format, if any.
    """
    if output is None:
        return fmt or "yaml"
    extension = os.path.splitext(output)[1][1:]
    if extension not in spec_file.FORMATS:
        raise fault("GH1514", path=output, reason="its name ends in neither .yaml nor .json")
    if fmt not in (None, extension):
        raise fault("GH1514", path=output, reason=f"it is named .{extension}, not .{fmt}")
    if os.path.isdir(output):
        raise fault("GH1514", path=output, reason="it is a directory")
    return extension


def write(path: str, fmt: str, found: DescribedSpecs) -> None:
    """Write the specs of a call and what `gpuhook refresh` needs; raises as spec_file.write()."""
    _write_spec(path, fmt, found.spec)
    stem, extension = os.path.splitext(path)
    for infix, further in found.further:
        other = stem + infix + extension
        _write_spec(other, fmt, further)
        console.say(f"wrote {other}: {further['kind']} {names(further)}")
    for trouble in found.record(path):
        console.warn(trouble)
    console.say(f"wrote {path}: {found.spec['kind']} {names(found.spec)}")


def _write_spec(path: str, fmt: str, spec: Spec) -> None:
    """Write one spec atomically, and its compiled form; raises as spec_file.write()."""
    spec_file.write(spec, path, fmt)
    _prepare(path, spec)


def names(spec: Spec) -> str:
    """Return the names of a spec's first devices, and the number of others."""
    found = [device["name"] for device in spec["devices"]]
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _prepare(path: str, described: Spec) -> None:
    """Store the compiled form for each path by which the wrapper may read the file."""
    directory, name = os.path.split(path)
    compiled_spec.store(path, os.stat(path), described)
    for other in settings.Settings().spec_dirs:
        # /var/run is a link to /run nearly everywhere.
        if other != directory and os.path.realpath(other) == os.path.realpath(directory):
            other_path = os.path.join(other, name)
            compiled_spec.store(other_path, os.stat(other_path), described)
