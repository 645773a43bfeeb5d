# SPDX-License-Identifier: Apache-2.0
"""The specs of a node with the driver's files: by their records, their hooks, and the host.

This module writes nothing and does not load NVML. A spec of a mode without GPUs is stale if it
would differ now: describing these devices is cheap, and they are in no fingerprint.
"""

from __future__ import annotations

import os
from functools import partial

from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import host_fingerprint, vocabulary
from gpuhook.vendors.nvidia.spec import spec_records
from gpuhook.vendors.spec_case import (
    FAILED,
    FORCED,
    FOREIGN,
    FORGOTTEN,
    FRESH,
    MAX_SPEC,
    NO_SPEC,
    OTHER_DEVICES,
    STALE,
    UNCHANGED,
    SpecCase,
    stale_case,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.vendors.spec_case import SpecLook

_PLUGINS = "the device plugin maintains it"


def spec_cases(look: SpecLook) -> list[SpecCase]:
    """Return a case for each spec, and the case of the first spec of a node without one.

    A spec outside the directories that engines read does not count.
    """
    present = [*look.known.all(), *look.known.broken]
    there = {os.path.realpath(spec.path): spec for spec in present}
    noted = [(made, there.get(os.path.realpath(made.path))) for made in spec_records.all_of_node()]
    cases = [_recorded(made, spec, look) for made, spec in noted]
    done = {os.path.realpath(case.path) for case in cases if case.state != FORGOTTEN}
    kind = look.settings.default_kind or vocabulary.VOCABULARY.default_kind
    foreign = []
    for path, spec in there.items():
        if path in done or spec.error is not None:
            continue
        if _is_own(spec):
            cases.append(_unrecorded(spec, look))
        elif spec.kind in (kind, vocabulary.PLUGIN_KIND):
            reason = _PLUGINS if spec.kind == vocabulary.PLUGIN_KIND else FOREIGN
            foreign.append(SpecCase(spec.path, UNCHANGED, reason))
    living = [case for case in cases if case.state != FORGOTTEN]
    if not any(_is_read(case.path, look) for case in living):
        reason = f"{NO_SPEC} in a directory that engines read" if living else NO_SPEC
        cases += foreign or _first(look, cases, reason)
    return cases


def _is_read(path: str, look: SpecLook) -> bool:
    """Return whether a spec is in a directory of CDI specs that engines or gpuhook read."""
    places = (*look.settings.spec_dirs, *look.read_dirs)
    return os.path.dirname(os.path.realpath(path)) in map(os.path.realpath, places)


def _recorded(made: spec_records.Generated, spec: Compiled | None, look: SpecLook) -> SpecCase:
    """Return the case of a recorded spec; `spec` is what engines read in its place."""
    words = tuple(made.words)
    if not os.path.exists(made.path):
        return SpecCase(made.path, FORGOTTEN, "it was removed", words)
    is_touched = made.identity != spec_records.identity(made.path)
    if is_touched and spec is not None and spec.error is None and not _is_own(spec):
        return SpecCase(made.path, FORGOTTEN, "another program has written it")
    changes = [FORCED] if look.is_forced else spec_records.changes(made)
    if spec is not None and spec.error is not None:
        changes.append("it is broken")
    if not changes and not made.has_node and _is_other(made, look):
        changes = [OTHER_DEVICES]
    if not changes:
        note = "; it was edited after it was written" if is_touched else ""
        return SpecCase(made.path, UNCHANGED, FRESH + note, words)
    absent = host_fingerprint.absence(made.host_root) if made.has_node else ""
    return stale_case(made.path, "; ".join(changes), absent, words)


def _is_other(made: spec_records.Generated, look: SpecLook) -> bool:
    """Return whether a spec of a mode without GPUs would differ now."""
    try:
        return files.read(made.path, MAX_SPEC) != look.remade(made.words, made.path)
    except (GpuhookError, OSError):
        return True  # writing it again reports the error


def _is_own(spec: Compiled) -> bool:
    """Return whether generate-cdi wrote a spec; the device plugin's specs have the same hook."""
    if spec.kind.partition("/")[0] == vocabulary.PLUGIN_VENDOR:
        return False
    edits = spec.edits
    hooks = edits.get("hooks") or ()
    return any(map(hook_args.is_ours, hooks)) or hookless_mounts.ENV in (edits.get("env") or ())


def _unrecorded(spec: Compiled, look: SpecLook) -> SpecCase:
    """Return the case of a spec of generate-cdi without a record."""
    try:
        ours = hook_args.own_jobs(spec.edits)
    except GpuhookError as error:
        return SpecCase(spec.path, FAILED, "its hook is unknown", error=error)
    recorded = [job for job in ours if job.fingerprint]
    if not recorded:
        return SpecCase(spec.path, UNCHANGED, "it contains no host fingerprint")
    job = recorded[0]
    changes = [FORCED] if look.is_forced else host_fingerprint.changes(job)
    if not changes:
        return SpecCase(spec.path, UNCHANGED, FRESH)
    from gpuhook.vendors.nvidia.generate import legacy_spec  # most specs have a record

    words = tuple(legacy_spec.words(spec, job))
    check = None if look.is_forced else partial(legacy_spec.require_same, spec)
    absent = host_fingerprint.absence(job.host_root)
    return stale_case(spec.path, "; ".join(changes), absent, words, check)


def _first(look: SpecLook, others: list[SpecCase], reason: str) -> list[SpecCase]:
    """Return the case of a node's first spec, none if the node needs no spec.

    A spec that was removed gets its recorded options.
    """
    if host_fingerprint.absence(state.host_root()) or not look.settings.spec_dirs:
        return []
    path = os.path.join(look.settings.spec_dirs[-1], "nvidia.yaml")
    words = {case.path: case.words for case in others}.get(path) or ("--output-file", path)
    return [SpecCase(path, STALE, reason, words, is_new=True)]
