# SPDX-License-Identifier: Apache-2.0
"""The plan of `gpuhook refresh`: the specs of this node, and which of them are stale.

This module writes nothing and does not load NVML. It describes the node only for modes without
GPUs: that is cheap, and their devices are in no fingerprint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.hot import registry
from gpuhook.cli.generate import generate_call
from gpuhook.engines.read.engine_config import CDI_DIRS
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import host_fingerprint, vocabulary
from gpuhook.vendors.nvidia.spec import spec_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.host.hot.settings import Settings

STALE, UNCHANGED, KEPT, FORGOTTEN = "stale", "unchanged", "kept", "forgotten"
FAILED = "failed"
FRESH = "it matches this host"
NO_SPEC = "this node has no CDI spec"
FOREIGN = "gpuhook did not write it"
_PLUGINS = "the device plugin maintains it"
MAX_SPEC = 64 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One spec, its state and the reason; generate-cdi writes it again with `words`.

    `origin` is the present spec if there is no record of its options. A new spec (`is_new`) must
    not replace a file. `error` is why the spec of a failed case could not be checked.
    """

    path: str
    state: str
    reason: str
    words: tuple[str, ...] = ()
    origin: Compiled | None = None
    is_new: bool = False
    error: GpuhookError | None = None


def refresh_cases(settings: Settings, root: click.Context, *, is_forced: bool) -> list[Case]:
    """Return a case for each spec, and the case of the first spec of a node without one.

    A spec outside the directories that engines read does not count. With `is_forced`, fresh specs
    are stale too.
    """
    known = registry.load(settings.spec_dirs, generate_call.compile_spec, vocabulary.VENDOR)
    there = {os.path.realpath(spec.path): spec for spec in [*known.all(), *known.broken]}
    noted = [(made, there.get(os.path.realpath(made.path))) for made in spec_records.all_of_node()]
    cases = [_recorded(made, spec, root, is_forced=is_forced) for made, spec in noted]
    done = {os.path.realpath(case.path) for case in cases if case.state != FORGOTTEN}
    kinds = (settings.default_kind or vocabulary.VOCABULARY.default_kind, vocabulary.PLUGIN_KIND)
    foreign = []
    for path, spec in there.items():
        if path in done or spec.error is not None:
            continue
        if _is_own(spec):
            cases.append(_unrecorded(spec, is_forced=is_forced))
        elif spec.kind in kinds:
            reason = _PLUGINS if spec.kind == vocabulary.PLUGIN_KIND else FOREIGN
            foreign.append(Case(spec.path, UNCHANGED, reason))
    living = [case for case in cases if case.state != FORGOTTEN]
    if not any(_is_read(case.path, settings) for case in living):
        reason = f"{NO_SPEC} in a directory that engines read" if living else NO_SPEC
        cases += foreign or _first(settings, cases, reason)
    return cases


def _is_read(path: str, settings: Settings) -> bool:
    """Return whether a spec is in a directory of CDI specs that engines or gpuhook read."""
    places = (*settings.spec_dirs, *CDI_DIRS, "/run/cdi")
    return os.path.dirname(os.path.realpath(path)) in map(os.path.realpath, places)


def _recorded(
    made: spec_records.Generated, spec: Compiled | None, root: click.Context, *, is_forced: bool
) -> Case:
    """Return the case of a recorded spec; `spec` is what engines read in its place."""
    words = tuple(made.words)
    if not os.path.exists(made.path):
        return Case(made.path, FORGOTTEN, "it was removed", words)
    is_touched = made.identity != spec_records.identity(made.path)
    if is_touched and spec is not None and spec.error is None and not _is_own(spec):
        return Case(made.path, FORGOTTEN, "another program has written it")
    changes = ["--force"] if is_forced else spec_records.changes(made)
    if spec is not None and spec.error is not None:
        changes.append("it is broken")
    if not changes and not made.has_node and _is_other(made, root):
        changes = ["its devices have changed"]
    if not changes:
        note = "; it was edited after it was written" if is_touched else ""
        return Case(made.path, UNCHANGED, FRESH + note, words)
    return _stale(made.path, "; ".join(changes), made.host_root if made.has_node else None, words)


def _stale(
    path: str,
    reason: str,
    host_root: str | None,
    words: tuple[str, ...],
    origin: Compiled | None = None,
) -> Case:
    """Return the case of a stale spec; without a GPU it is kept, as the driver may return."""
    absent = host_fingerprint.absence(host_root) if host_root is not None else ""
    if absent:
        return Case(path, KEPT, f"{absent} ({reason}); no container gets a GPU from it", words)
    return Case(path, STALE, reason, words, origin)


def _is_other(made: spec_records.Generated, root: click.Context) -> bool:
    """Return whether a spec of a mode without GPUs would differ now."""
    fmt = os.path.splitext(made.path)[1][1:]
    try:
        now = generate_call.text(made.words, fmt, root)
        return files.read(made.path, MAX_SPEC) != now.encode()
    except (GpuhookError, OSError):
        return True  # writing it again reports the error


def _is_own(spec: Compiled) -> bool:
    """Return whether generate-cdi wrote a spec; the device plugin's specs have the same hook."""
    if spec.kind.partition("/")[0] == vocabulary.PLUGIN_VENDOR:
        return False
    edits = spec.edits
    hooks = edits.get("hooks") or ()
    return any(map(hook_args.is_ours, hooks)) or hookless_mounts.ENV in (edits.get("env") or ())


def _unrecorded(spec: Compiled, *, is_forced: bool) -> Case:
    """Return the case of a spec of generate-cdi without a record."""
    try:
        ours = hook_args.own_jobs(spec.edits)
    except GpuhookError as error:
        return Case(spec.path, FAILED, "its hook is unknown", error=error)
    recorded = [job for job in ours if job.fingerprint]
    if not recorded:
        return Case(spec.path, UNCHANGED, "it contains no host fingerprint")
    job = recorded[0]
    changes = ["--force"] if is_forced else host_fingerprint.changes(job)
    if not changes:
        return Case(spec.path, UNCHANGED, FRESH)
    from gpuhook.cli.generate import legacy_spec  # it loads YAML; most specs have a record

    words = tuple(legacy_spec.words(spec, job))
    return _stale(spec.path, "; ".join(changes), job.host_root, words, spec)


def _first(settings: Settings, others: list[Case], reason: str) -> list[Case]:
    """Return the case of a node's first spec, none if the node needs no spec.

    A spec that was removed gets its recorded options.
    """
    if host_fingerprint.absence(state.host_root()) or not settings.spec_dirs:
        return []
    path = os.path.join(settings.spec_dirs[-1], "nvidia.yaml")
    words = {case.path: case.words for case in others}.get(path) or ("--output-file", path)
    return [Case(path, STALE, reason, words, is_new=True)]
