# SPDX-License-Identifier: Apache-2.0
"""What `gpuhook refresh` has to do: each spec of this node that is ours, and whether it is stale.

Nothing is written here, and NVML is not loaded. Only modes that ask for no GPU describe the node
to find out: that costs them little, and no fingerprint tells of their devices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.cdi.hot import registry
from gpuhook.cli.generate import generate_call
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import host_fingerprint, vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import hook_args
from gpuhook.vendors.nvidia.spec import spec_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.host.hot.settings import Settings

STALE, UNCHANGED, KEPT, FORGOTTEN = "stale", "unchanged", "kept", "forgotten"
FAILED = "failed"
FRESH = "it describes this host as it is"
_FOREIGN = "gpuhook did not write it"
_PLUGINS = "the device plugin keeps it"
_MAX_SPEC = 64 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One spec, what is to become of it, and why; `words` make it again.

    `origin` is the spec as it is, where nobody has noted how it was made. What is in the place of
    a new one is nobody's that we know. `error` is what keeps one that failed from being judged.
    """

    path: str
    state: str
    reason: str
    words: tuple[str, ...] = ()
    origin: Compiled | None = None
    is_new: bool = False
    error: GpuhookError | None = None


def of_node(settings: Settings, root: click.Context, *, is_forced: bool) -> list[Case]:
    """Return a case for each spec; for a node that has none, one of the spec that it shall have.

    With `is_forced`, fresh specs are written again too.
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
            reason = _PLUGINS if spec.kind == vocabulary.PLUGIN_KIND else _FOREIGN
            foreign.append(Case(spec.path, UNCHANGED, reason))
    if all(case.state == FORGOTTEN for case in cases):
        cases += foreign or _first(settings, cases)
    return cases


def _recorded(
    made: spec_records.Generated, spec: Compiled | None, root: click.Context, *, is_forced: bool
) -> Case:
    """Return the case of a spec that is noted; `spec` is what engines read there."""
    words = tuple(made.words)
    if not os.path.exists(made.path):
        return Case(made.path, FORGOTTEN, "somebody has removed it", words)
    is_touched = made.identity != spec_records.identity(made.path)
    if is_touched and spec is not None and spec.error is None and not _is_own(spec):
        return Case(made.path, FORGOTTEN, "another program has written it")
    changes = ["--force"] if is_forced else spec_records.changes(made)
    if spec is not None and spec.error is not None:
        changes.append("it is broken")
    if not changes and not made.has_node and _is_other(made, root):
        changes = ["its devices were changed"]
    if not changes:
        note = "; somebody has changed it since it was written" if is_touched else ""
        return Case(made.path, UNCHANGED, FRESH + note, words)
    return _stale(made.path, "; ".join(changes), made.host_root if made.has_node else None, words)


def _stale(
    path: str,
    reason: str,
    host_root: str | None,
    words: tuple[str, ...],
    origin: Compiled | None = None,
) -> Case:
    """Return the case of a stale spec; without a GPU it is kept, as a driver may come back."""
    absent = host_fingerprint.absence(host_root) if host_root is not None else ""
    if absent:
        return Case(path, KEPT, f"{absent} ({reason}); no container gets a GPU by it", words)
    return Case(path, STALE, reason, words, origin)


def _is_other(made: spec_records.Generated, root: click.Context) -> bool:
    """Return whether a spec of a mode that asks for no GPU would be another now."""
    fmt = os.path.splitext(made.path)[1][1:]
    try:
        now = generate_call.text(made.words, fmt, root)
        return files.read(made.path, _MAX_SPEC) != now.encode()
    except (GpuhookError, OSError):
        return True  # writing it again tells what is wrong


def _is_own(spec: Compiled) -> bool:
    """Return whether generate-cdi wrote a spec; the device plugin's have our hook too."""
    if spec.kind.partition("/")[0] == vocabulary.PLUGIN_VENDOR:
        return False
    edits = spec.edits
    hooks = edits.get("hooks") or ()
    return any(map(hook_args.is_ours, hooks)) or hookless_mounts.ENV in (edits.get("env") or ())


def _unrecorded(spec: Compiled, *, is_forced: bool) -> Case:
    """Return the case of a spec that is ours by what it says, and how it was made nobody noted."""
    hooks = spec.edits.get("hooks") or ()
    try:
        ours = [hook_args.of_hook(hook) for hook in hooks if hook_args.is_ours(hook)]
    except GpuhookError as error:
        return Case(spec.path, FAILED, "its hook cannot be understood", error=error)
    recorded = [job for job in ours if job.fingerprint]
    if not recorded:
        return Case(spec.path, UNCHANGED, "it does not say of which state of the host it is")
    job = recorded[0]
    changes = ["--force"] if is_forced else host_fingerprint.changes(job)
    if not changes:
        return Case(spec.path, UNCHANGED, FRESH)
    from gpuhook.cli.generate import legacy_spec  # with YAML: most specs have a record

    words = tuple(legacy_spec.words(spec, job))
    return _stale(spec.path, "; ".join(changes), job.host_root, words, spec)


def _first(settings: Settings, forgotten: list[Case]) -> list[Case]:
    """Return the case of a node's first spec, none for a node that needs none.

    One that was there, and is gone, is made as it was.
    """
    if host_fingerprint.absence(state.host_root()) or not settings.spec_dirs:
        return []
    path = os.path.join(settings.spec_dirs[-1], "nvidia.yaml")
    words = {case.path: case.words for case in forgotten}.get(path) or ("--output", path)
    return [Case(path, STALE, "this node has no CDI spec", words, is_new=True)]
