# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`: writes the stale CDI specs of this node again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import click

from gpuhook.cli.generate import generate_call, refresh_plan
from gpuhook.cli.generate.refresh_plan import FAILED, FORGOTTEN, STALE, Case
from gpuhook.cli.options import parameters
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console
from gpuhook.host.error_text import worded
from gpuhook.host.hot import settings, state
from gpuhook.host.hot.file_lock import FileLock
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.spec import spec_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "gpuhook/refresh/v1"
WRITTEN = "written"
_LOCK_SECONDS = 60.0
_EXAMPLES = """
\b
Examples:
  gpuhook refresh
  gpuhook refresh --dry-run
  gpuhook refresh --force -o json
"""


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """The result for one spec, and the reason; `error` is why it could not be written."""

    path: str
    state: str
    reason: str
    error: GpuhookError | None = None

    def document(self) -> dict[str, object]:
        """Return the result as -o json has it."""
        document: dict[str, object] = {
            "path": self.path,
            "state": self.state,
            "reason": self.reason,
        }
        if self.error is not None:
            document["error"] = {
                "code": self.error.code,
                "message": self.error.message,
                "hint": self.error.hint,
            }
        return document


@click.command(epilog=_EXAMPLES)
@parameters.dry_run
@click.option("--force", "is_forced", is_flag=True, help="Write all specs again, also fresh ones.")
@parameters.output("text", "json", "yaml")
@click.pass_context
def refresh(ctx: click.Context, /, *, is_dry: bool, is_forced: bool, output: str) -> None:
    """Write the stale CDI specs of this node again.

    Specs become stale by a boot, a driver upgrade, an added or removed GPU, or a change of MIG
    devices. refresh writes each stale spec of `gpuhook generate-cdi` again with its original
    options. On a node without a spec, it writes nvidia.yaml in the last directory of cdi.specDirs.
    It does not change fresh specs and specs of other programs.

    A node without a driver or a GPU needs no spec: an existing spec of gpuhook remains, and no
    container gets a GPU by it.

    The exit status is 0 if all specs are fresh or there is nothing to do, 1 if a spec could not be
    written, and 2 for wrong usage.
    """
    chosen = settings.load(_compile_settings)
    root = ctx.find_root()

    def look() -> list[Case]:
        return refresh_plan.refresh_cases(chosen, root, is_forced=is_forced)

    cases = look()
    if not is_dry and any(case.state in (STALE, FORGOTTEN) for case in cases):
        with _locked():
            cases = look()  # another process may have written them
            outcomes = [_outcome(case, root) for case in cases]
    else:
        outcomes = [_untouched(case) for case in cases]
    _show(outcomes, output, is_dry=is_dry)
    ctx.exit(1 if any(one.state == FAILED for one in outcomes) else 0)


def _compile_settings(path: str) -> None:
    """Check the settings file and store its compiled form: checking takes half of the time."""
    from gpuhook.node import settings_file

    reason = settings_file.problem(path)
    document: dict[str, object] = {"error": reason} if reason else settings_file.load(path)
    settings.store(path, os.stat(path), document)


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock for writing specs; GH1526 if another process holds it for too long."""
    path = os.path.join(state.directory(), "refresh.lock")
    late = partial(fault, "GH1526", path=path, seconds=f"{_LOCK_SECONDS:g}")
    with FileLock(path, _LOCK_SECONDS, late):
        yield


def _untouched(case: Case) -> RefreshOutcome:
    return RefreshOutcome(case.path, case.state, case.reason, case.error)


def _outcome(case: Case, root: click.Context) -> RefreshOutcome:
    """Handle one spec; its failure does not affect the others."""
    try:
        if case.state == FORGOTTEN:
            spec_records.forget(case.path)
        if case.state != STALE:
            return _untouched(case)
        if case.is_new and os.path.lexists(case.path):
            raise fault("GH1529", path=case.path)
        if case.origin is not None and case.reason != "--force":
            from gpuhook.cli.generate import legacy_spec

            legacy_spec.require_same(case.origin, case.words, root)
        os.makedirs(os.path.dirname(case.path), 0o755, exist_ok=True)
        generate_call.run(case.words, root)
    except (GpuhookError, OSError) as error:
        return RefreshOutcome(case.path, FAILED, case.reason, worded(error))
    return RefreshOutcome(case.path, WRITTEN, case.reason)


def _show(outcomes: list[RefreshOutcome], output: str, *, is_dry: bool) -> None:
    if output != "text":
        document: dict[str, object] = {
            "schema": SCHEMA,
            "dryRun": is_dry,
            "specs": [one.document() for one in outcomes],
        }
        if not outcomes:
            document["reason"] = _nothing()
        console.document(document, output)
        return
    for one in outcomes:
        click.echo(f"{one.path}: {one.state}: {one.reason}")
        if one.error is not None:
            click.echo(f"Error {one.error.code}: {one.error.message}", err=True)
            click.echo(f"hint: {one.error.hint}", err=True)
    if not outcomes:
        click.echo(f"nothing to do: {_nothing()}")


def _nothing() -> str:
    return host_fingerprint.absence(state.host_root()) or "cdi.specDirs names no directory"
