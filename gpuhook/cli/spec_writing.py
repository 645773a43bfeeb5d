# SPDX-License-Identifier: Apache-2.0
"""A described node written: its spec, the wrapper's form of it, and what was seen of the node."""

from __future__ import annotations

import os

import click

from gpuhook import settings
from gpuhook.cdi import cache, spec
from gpuhook.cli import printing
from gpuhook.errors import fault
from gpuhook.vendors.nvidia import (
    freshness,
    generated,
    jobs,
    known_node,
    node_file,
    selection,
    site_rules,
    spec_common,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.edits import Spec
    from gpuhook.vendors.nvidia.choices import Choices, Described

_SHOWN = 24  # eight GPUs by index and UUID, and `all`, are well in it


def format_of(output: str | None, fmt: str | None) -> str:
    """Return the format to write; GH1514 if engines would not read that file, or misread it.

    `output` is None for standard output, `fmt` what the caller wants, if anything.
    """
    if output is None:
        return fmt or "yaml"
    extension = os.path.splitext(output)[1][1:]
    if extension not in spec.FORMATS:
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
    words: list[str] | None = None,
    *,
    files_dir: str = site_rules.DIRECTORY,
) -> None:
    """Write the spec to `path`, atomically, and what belongs to it; raises what spec.write does.

    With `words`, which make it again, it is of this machine: its node.json is written too, and
    what `gpuhook refresh` has to know. `files_dir` has the rules that were followed.
    """
    spec.write(found.spec, path, fmt)
    _prepare(path, found.spec)
    stem, extension = os.path.splitext(path)
    for infix, further in found.further:
        beside = stem + infix + extension
        spec.write(further, beside, fmt)
        _prepare(beside, further)
        printing.say(f"wrote {beside}: {further['kind']} {names(further)}")
    if words is None:
        return
    if found.node is not None:
        _remember(found, choices, path)
    _note(found, choices, path, words, files_dir)


def _note(found: Described, choices: Choices, path: str, words: list[str], files_dir: str) -> None:
    hooks = (found.spec.get("containerEdits") or {}).get("hooks") or []
    ours = [jobs.of_hook(hook) for hook in hooks if jobs.is_ours(hook)]
    node = found.node
    libcuda = spec_common.libcuda_of(node) if node else ""
    if ours:
        libcuda = ours[0].libcuda
    fingerprint = node.fingerprint if node else freshness.fingerprint(choices.host_root, libcuda)
    made = generated.Generated(
        path=path,
        words=words,
        host_root=choices.host_root,
        libcuda=libcuda,
        fingerprint=fingerprint,
        has_node=node is not None,
        identity=generated.identity(path),
        files_dir=os.path.abspath(files_dir),
        inputs=generated.inputs(os.path.abspath(files_dir)),
    )
    try:
        generated.remember(made)
    except OSError as error:
        reason = error.strerror or error
        told = f"warning: {generated.directory()} was not written: {reason}"
        click.echo(f"{told}; gpuhook refresh will not know how {path} was made", err=True)


def names(spec: Spec) -> str:
    """Return the names of a spec's devices, as a list for people: the first of many."""
    found = [device["name"] for device in spec["devices"]]
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _prepare(path: str, described: Spec) -> None:
    """Keep the compiled form, under every name by which the wrapper may meet the file."""
    directory, name = os.path.split(path)
    cache.store(path, os.stat(path), described)
    for other in settings.Settings().spec_dirs:
        # /var/run is a link to /run nearly everywhere.
        if other != directory and os.path.realpath(other) == os.path.realpath(directory):
            other_path = os.path.join(other, name)
            cache.store(other_path, os.stat(other_path), described)


def _remember(found: Described, choices: Choices, path: str) -> None:
    if found.node is None:
        return
    try:
        node_file.write(found.node, selection.aliases(found.gpus, choices.strategies), path)
    except OSError as error:
        reason = error.strerror or error
        click.echo(f"warning: {known_node.path()} was not written: {reason}", err=True)
