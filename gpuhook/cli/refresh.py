# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`: the CDI specs of this node written again where the node has changed."""

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
_PATIENCE = 60.0  # seconds
_EXAMPLES = """
\b
Examples:
  gpuhook refresh
  gpuhook refresh --dry-run
  gpuhook refresh --force -o json
"""


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """What became of one spec, and why; `error` is what kept it from being written."""

    path: str
    state: str
    reason: str
    error: GpuhookError | None = None

    def document(self) -> dict[str, object]:
        """Return it as -o json has it."""
        told: dict[str, object] = {"path": self.path, "state": self.state, "reason": self.reason}
        if self.error is not None:
            told["error"] = {
                "code": self.error.code,
                "message": self.error.message,
                "hint": self.error.hint,
            }
        return told


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", "is_dry", is_flag=True, help="Print what would be done, and do nothing.")
@click.option(
    "--force", "is_forced", is_flag=True, help="Write specs again that are as they should be."
)
@parameters.output("text", "json", "yaml")
@click.pass_context
def refresh(ctx: click.Context, /, *, is_dry: bool, is_forced: bool, output: str) -> None:
    """Write the CDI specs of this node again where they describe another state of it.

    After a boot, a driver upgrade, a GPU that came or went, and a change of MIG devices. Each spec
    that `gpuhook generate-cdi` has written here is written again with the options that it was
    written with; where there is none, nvidia.yaml in the last directory of cdi.specDirs is. Specs
    that are as they should be stay untouched, and so do those of others.

    A node without a driver or a GPU needs none: a spec of ours stays, and gives nobody a GPU.

    Exit status 0 where every spec is as it should be, or nothing is to be done; 1 where one could
    not be written; 2 for wrong usage.
    """
    chosen = settings.load(_compile_settings)
    root = ctx.find_root()

    def look() -> list[Case]:
        return refresh_plan.of_node(chosen, root, is_forced=is_forced)

    cases = look()
    if not is_dry and any(case.state in (STALE, FORGOTTEN) for case in cases):
        with _locked():
            cases = look()  # another one may have been at work
            outcomes = [_done(case, root) for case in cases]
    else:
        outcomes = [_untouched(case) for case in cases]
    _show(outcomes, output, is_dry=is_dry)
    ctx.exit(1 if any(one.state == FAILED for one in outcomes) else 0)


def _compile_settings(path: str) -> None:
    """Check the settings file and keep its compiled form, which costs as much as all the rest."""
    from gpuhook.node import settings_file

    reason = settings_file.problem(path)
    document: dict[str, object] = {"error": reason} if reason else settings_file.load(path)
    settings.store(path, os.stat(path), document)


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock of those who write specs; GH1526 if another one holds it for too long."""
    path = os.path.join(state.directory(), "refresh.lock")
    late = partial(fault, "GH1526", path=path, seconds=f"{_PATIENCE:g}")
    with FileLock(path, _PATIENCE, late):
        yield


def _untouched(case: Case) -> RefreshOutcome:
    return RefreshOutcome(case.path, case.state, case.reason, case.error)


def _done(case: Case, root: click.Context) -> RefreshOutcome:
    """Do what is to be done with one spec; the others do not wait for it."""
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
