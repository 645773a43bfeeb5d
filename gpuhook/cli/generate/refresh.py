# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`: writes the stale CDI specs of this node again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import click

from gpuhook.cli.generate import device_refresh, generate_call, refresh_plan
from gpuhook.cli.generate.refresh_plan import FAILED, FORGOTTEN, STALE, Case
from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console, system_mounts
from gpuhook.host.error_text import worded
from gpuhook.host.hot import settings, state
from gpuhook.host.hot.file_lock import FileLock
from gpuhook.vendors.catalogue import vendors
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


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@parameters.dry_run
@click.option("--force", "is_forced", is_flag=True, help="Regenerate all specs, even fresh ones.")
@parameters.output("text", "json", "yaml")
@click.pass_context
def refresh(ctx: click.Context, /, *, is_dry: bool, is_forced: bool, output: str) -> None:
    """Regenerate the stale CDI specs of this node.

    Specs become stale after a reboot, a driver upgrade, or a change of GPUs, partitions or
    MIG devices. refresh regenerates each stale spec of `gpuhook generate-cdi` with its original
    options. If no directory that engines read has a spec of a vendor's GPUs, it writes nvidia.yaml
    or amd.yaml to the last directory of cdi.specDirs.
    Fresh specs and specs of other programs are not changed.

    A node without a driver or a GPU needs no spec: an existing gpuhook spec remains, but no
    container gets a GPU from it.

    The exit status is 0 if all specs are fresh or there is nothing to do, 1 if a spec could not be
    written, and 2 for wrong usage.
    """
    cases = refreshed(ctx.find_root(), is_dry=is_dry, is_forced=is_forced)
    _show(cases, output, is_dry=is_dry)
    ctx.exit(1 if any(one.state == FAILED for one in cases) else 0)


def refreshed(root: click.Context, *, is_dry: bool, is_forced: bool = False) -> list[Case]:
    """Write the stale specs, and return the cases of all; if `is_dry`, only return the cases.

    `root` is the context of the command `gpuhook`. Raises GH1526, GH1530, and GH1594 without /proc.
    """
    system_mounts.require()
    chosen = settings.load(_compile_settings)

    def look() -> list[Case]:
        return [
            *refresh_plan.refresh_cases(chosen, root, is_forced=is_forced),
            *device_refresh.device_cases(chosen, root, is_forced=is_forced),
        ]

    with console.progress("comparing the specs with the node"):
        cases = look()
    if not is_dry and any(case.state in (STALE, FORGOTTEN) for case in cases):
        with console.progress("writing the specs"), _locked():
            # Another process may have written them.
            cases = [_outcome(case, root) for case in look()]
    return cases


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


def _outcome(case: Case, root: click.Context) -> Case:
    """Handle one spec, and return its case; its failure does not affect the others."""
    try:
        if case.state == FORGOTTEN:
            spec_records.forget(case.path)
        if case.state != STALE:
            return case
        if case.is_new and os.path.lexists(case.path):
            raise fault("GH1529", path=case.path)
        if case.origin is not None and case.reason != "--force":
            from gpuhook.cli.generate import legacy_spec

            legacy_spec.require_same(case.origin, case.words, root)
        os.makedirs(os.path.dirname(case.path), 0o755, exist_ok=True)
        generate_call.run(case.words, root)
    except (GpuhookError, OSError) as error:
        return replace(case, state=FAILED, error=worded(error))
    return replace(case, state=WRITTEN)


def _document(case: Case) -> dict[str, object]:
    document: dict[str, object] = {
        "path": case.path,
        "state": case.state,
        "reason": case.reason,
    }
    if case.error is not None:
        document["error"] = {
            "code": case.error.code,
            "message": case.error.message,
            "hint": case.error.hint,
        }
    return document


def _show(cases: list[Case], output: str, *, is_dry: bool) -> None:
    if output != "text":
        document: dict[str, object] = {
            "schema": SCHEMA,
            "dryRun": is_dry,
            "specs": [_document(one) for one in cases],
        }
        if not cases:
            document["reason"] = nothing_to_do()
        console.document(document, output)
        return
    for one in cases:
        click.echo(f"{one.path}: {one.state}: {one.reason}")
        if one.error is not None:
            click.echo(f"Error {one.error.code}: {one.error.message}", err=True)
            click.echo(f"hint: {one.error.hint}", err=True)
    if not cases:
        click.echo(f"nothing to do: {nothing_to_do()}")


def nothing_to_do() -> str:
    """Return why a node without cases needs no spec."""
    absences = [vendor.absence(state.host_root()) for vendor in vendors()]
    return "; ".join(absences) if all(absences) else "cdi.specDirs names no directory"
