# SPDX-License-Identifier: Apache-2.0
"""Writes the spec of a node, its compiled form, node.json and the record for refresh."""

from __future__ import annotations

import os

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.hot import settings
from gpuhook.vendors.nvidia.hot import host_fingerprint, node_json
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec import device_selection, driver_edits, spec_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described

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


def write(
    path: str,
    fmt: str,
    found: Described,
    choices: Choices,
    words: list[str] | None,
    *,
    files_dir: str,
) -> None:
    """Write the spec to `path` atomically, and its compiled form; raises as spec_file.write().

    `words` are the options of a spec of this machine: then node.json and the record for `gpuhook
    refresh` are written too. `files_dir` is the directory with the rules for driver files.
    """
    write_spec(path, fmt, found.spec)
    stem, extension = os.path.splitext(path)
    for infix, further in found.further:
        other = stem + infix + extension
        write_spec(other, fmt, further)
        console.say(f"wrote {other}: {further['kind']} {names(further)}")
    if words is None:
        return
    if found.node is not None:
        _write_node_json(found.node, device_selection.aliases(found.gpus, choices.strategies), path)
    _note(found, choices, path, words, files_dir)


def write_spec(path: str, fmt: str, spec: Spec) -> None:
    """Write one spec atomically, and its compiled form; raises as spec_file.write()."""
    spec_file.write(spec, path, fmt)
    _prepare(path, spec)


def _note(found: Described, choices: Choices, path: str, words: list[str], files_dir: str) -> None:
    ours = hook_args.own_jobs(found.spec.get("containerEdits") or {})
    node = found.node
    libcuda = driver_edits.libcuda_of(node) if node else ""
    if ours:
        libcuda = ours[0].libcuda
    fingerprint = (
        node.fingerprint if node else host_fingerprint.fingerprint(choices.host_root, libcuda)
    )
    made = spec_records.Generated(
        path=path,
        words=words,
        host_root=choices.host_root,
        libcuda=libcuda,
        fingerprint=fingerprint,
        has_node=node is not None,
        identity=spec_records.identity(path),
        files_dir=os.path.abspath(files_dir),
        inputs=spec_records.inputs(os.path.abspath(files_dir)),
    )
    try:
        spec_records.remember(made)
    except OSError as error:
        reason = error.strerror or error
        console.warn(
            f"{spec_records.directory()} was not written: {reason}; gpuhook refresh will "
            f"not know the options of {path}"
        )


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


def _write_node_json(node: Node, aliases: dict[str, str], path: str) -> None:
    try:
        dump_file.write_node_json(node, aliases, path)
    except OSError as error:
        reason = error.strerror or error
        console.warn(f"{node_json.path()} was not written: {reason}")
