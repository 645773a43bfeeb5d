# SPDX-License-Identifier: Apache-2.0
"""The specs of a node's AMD GPUs, for `gpuhook refresh`.

A spec has its options in it, and describing the node is cheap: it is stale if it would differ now.
"""

from __future__ import annotations

import os

from gpuhook.cdi import spec_file, spec_notes
from gpuhook.cdi.hot.spec_versions import VERSIONS
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.vendors.amd.hot.amd_words import KIND
from gpuhook.vendors.amd.spec import amd_node
from gpuhook.vendors.spec_case import (
    FORCED,
    FOREIGN,
    FRESH,
    MAX_SPEC,
    NO_SPEC,
    OTHER_DEVICES,
    STALE,
    UNCHANGED,
    SpecCase,
    stale_case,
)
from gpuhook.vendors.spec_choices import DEFAULT_VERSION, SPEC_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.spec_case import SpecLook

_VERSION = "--cdi-version"
_VENDOR = ("--vendor", "amd")


def spec_cases(look: SpecLook) -> list[SpecCase]:
    """Return a case for each spec, and of the first spec of GPUs that have none."""
    absent = amd_node.absence(state.host_root())
    present = [spec.path for spec in look.known.all() if spec.kind == KIND]
    mine = {os.path.realpath(path): path for path in present}
    found = [_case(path, absent, look) for path in mine.values()]
    dirs = look.settings.spec_dirs
    if not found and not absent and dirs:
        path = os.path.join(dirs[-1], "amd.yaml")
        older, _ = _older_version(look)
        words = (*_VENDOR, *older, "--output-file", path)
        found = [SpecCase(path, STALE, NO_SPEC, words, is_new=True)]
    return found


def _case(path: str, absent: str, look: SpecLook) -> SpecCase:
    options = _options(path)
    if options is None:
        return SpecCase(path, UNCHANGED, FOREIGN)
    older, why = ([], "") if _VERSION in options else _older_version(look)
    words = (*_VENDOR, *options, *older, "--output-file", path)
    reason = FORCED if look.is_forced else _change(path, words, look, why or OTHER_DEVICES)
    if absent or reason:
        return stale_case(path, reason, absent, words)
    return SpecCase(path, UNCHANGED, FRESH, words)


def _older_version(look: SpecLook) -> tuple[list[str], str]:
    """Return the option for an engine that reads only specs of older versions of CDI, and why."""
    read, why = look.older_reader()
    if not read or VERSIONS.index(read) >= VERSIONS.index(DEFAULT_VERSION):
        return [], ""
    return [_VERSION, max(read, SPEC_VERSIONS[0], key=VERSIONS.index)], why


def _options(path: str) -> list[str] | None:
    try:
        return spec_notes.options(spec_file.read(path))
    except GpuhookError:
        return None  # it was removed, or replaced by a broken file


def _change(path: str, words: tuple[str, ...], look: SpecLook, changed: str) -> str:
    """Return why a spec is not the one that these options make now (`changed`), "" if it is."""
    try:
        return "" if files.read(path, MAX_SPEC) == look.remade(words, path) else changed
    except (GpuhookError, OSError) as error:
        return str(error)  # writing it again reports it
