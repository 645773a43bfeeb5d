# SPDX-License-Identifier: Apache-2.0
"""`gpuhook doctor`: what is wrong with a node, what it means, and what mends it."""

from __future__ import annotations

import difflib
import os
from typing import Any

import click

from gpuhook.cli.options import container_options, doctor_target, node_options, parameters
from gpuhook.doctor import doctor_document, doctor_text, fix
from gpuhook.doctor.check import FAILED, SECTIONS, WARNING
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.doctor.reading_collectors import ReadingPlace
from gpuhook.errors import fault
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.doctor.check import Check
    from gpuhook.doctor.examination import Examination
    from gpuhook.doctor.fix import FixResult

_EXAMPLES = """
\b
Examples:
  gpuhook doctor
  gpuhook doctor --checks driver,devices.uvm
  gpuhook doctor --root /mnt/node -o json
  gpuhook doctor --from gpuhook-bundle-node7.tar.gz
  gpuhook doctor --fix --dry-run
"""


def _chosen(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the ids that --checks means, None without it: ids, their first halves, sections."""
    if not values:
        return None
    words = [word.strip() for value in values for word in value.split(",")]
    words = [word for word in dict.fromkeys(words) if word]
    found: list[str] = []
    for word in words:
        meant = [
            check.id
            for check in checks()
            if word in (check.id, check.section, check.id.partition(".")[0])
        ]
        if not meant:
            raise click.BadParameter(_unknown(word), ctx, param)
        found += meant
    if not found:
        raise click.BadParameter("it names no check", ctx, param)
    return tuple(dict.fromkeys(found))


def _completed(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return what --checks takes and begins so, for a shell: after a comma, of the last one."""
    before, comma, last = incomplete.rpartition(",")
    known = dict.fromkeys([*SECTIONS, *(check.id for check in checks())])
    return [before + comma + word for word in known if word.startswith(last)]


def _unknown(word: str) -> str:
    known = [*(check.id for check in checks()), *SECTIONS]
    near = difflib.get_close_matches(word, known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"there is no check {word}{meant} (`gpuhook doctor --list` lists them)"


@click.command(epilog=_EXAMPLES)
@click.option(
    "--checks",
    "chosen",
    metavar="ID,...",
    multiple=True,
    callback=_chosen,
    shell_complete=_completed,
    envvar="GPUHOOK_DOCTOR_CHECKS",
    show_envvar=True,
    help="Look at these only, and at what they need: ids, or sections such as driver; repeatable.",
)
@click.option("--list", "is_list", is_flag=True, help="List the checks, and look at nothing.")
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(file_okay=False),
    show_envvar=True,
    help="Look at the files of a node that lie in DIR. --driver-root and --dev-root are then its "
    "own paths. Nothing is asked of such a node, unless it is this one, seen from a container "
    "(kubectl debug node/NAME has it in /host).",
)
@click.option(
    "--from",
    "bundle",
    metavar="BUNDLE",
    type=click.Path(exists=True, dir_okay=False),
    help="Look at the node that `gpuhook support-bundle` has put into this file, as it was then.",
)
@click.option(
    "--fix",
    "is_fix",
    is_flag=True,
    help="Mend what can be mended safely, after saying what, and look again.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="With --fix: say what it would do.")
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="wide also says what was looked at, and what is left out. name: the ids of what failed "
    "and what is warned of, as --checks takes them.",
)
@parameters.no_headers
@container_options.state_root
@node_options.place_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    *,
    chosen: tuple[str, ...] | None,
    is_list: bool,
    root: str | None,
    bundle: str | None,
    is_fix: bool,
    is_dry: bool,
    output: str,
    no_headers: bool,
    state_roots: tuple[str, ...],
    host_root: str,
    **place: Any,
) -> None:
    """Look for what keeps containers from their GPUs: each fault, its meaning, what mends it.

    Driver, device nodes, GPUs, CDI specs, engines, Kubernetes, gpuhook's own installation, and the
    containers that run. It works beside NVIDIA's stack, with nothing of gpuhook configured, and
    changes nothing without --fix. Run it as root: to others much of a node is hidden.

    A fault that is told first explains those below: what follows from it is not looked at before
    it is mended. Exit status 1 where a check has failed, 0 with warnings only.
    """
    if is_list:
        if is_fix or bundle is not None:
            raise click.UsageError("--list looks at nothing: name it without --fix and --from")
        _print_list(chosen, output, no_headers=no_headers)
        return
    _require_sense(root, bundle, is_fix=is_fix, is_dry=is_dry)
    where = ReadingPlace(host_root=host_root, **place)
    node = (
        doctor_target.of_bundle(bundle)
        if bundle is not None
        else doctor_target.of_options(root, where, state_roots)
    )

    if os.geteuid() != 0 and node.is_live:
        console.say("not run as root: much of this node is hidden, and what is hidden is not told")

    def look() -> Examination:
        with console.progress("looking at the node"):
            return examine(node.look(), checks(), chosen)

    fixes: list[FixResult] | None = None
    if is_fix and not is_dry:
        found, fixes = fix.apply_fixes(look, console.say)
    else:
        found = look()
        fixes = fix.planned_fixes(found) if is_fix else None
    if output in (console.JSON, console.YAML):
        told = doctor_document.doctor_document(
            found, bundle or root or host_root, is_live=node.is_live, fixes=fixes
        )
        console.document(told, output)
    elif output == console.NAME:
        wrong = [*found.of(FAILED), *found.of(WARNING)]
        console.names(dict.fromkeys(one.check.id for one in wrong))
    else:
        _print(found, fixes, is_wide=output == console.WIDE)
    ctx.exit(0 if found.is_well else 1)


def _require_sense(root: str | None, bundle: str | None, *, is_fix: bool, is_dry: bool) -> None:
    """Raise a usage error for options that contradict each other; GH1903 for a tree's --fix."""
    if is_dry and not is_fix:
        raise click.UsageError("--dry-run says what --fix would do: name both")
    if bundle is not None and root is not None:
        raise click.UsageError("--from and --root each name a node: name one")
    if is_fix and (bundle or root):
        raise fault("GH1903", path=bundle or root)


def _print(found: Examination, fixes: Sequence[FixResult] | None, *, is_wide: bool) -> None:
    has_colour, is_quiet = console.has_colour(), console.is_quiet()
    lines = doctor_text.lines(found, is_wide=is_wide, is_quiet=is_quiet, has_colour=has_colour)
    for line in [*lines, *doctor_text.fix_lines(fixes)]:
        click.echo(line)
    if is_quiet:  # that nothing is wrong means little there
        for said in doctor_text.without_gpu(found):
            click.echo(said, err=True)
    console.say(doctor_text.summary(found))


def _print_list(chosen: Sequence[str] | None, output: str, *, no_headers: bool) -> None:
    listed: list[Check] = [one for one in checks() if chosen is None or one.id in chosen]
    listed.sort(key=lambda check: SECTIONS.index(check.section))
    if output in (console.JSON, console.YAML):
        console.document(doctor_document.listing(listed), output)
        return
    if output == console.NAME:
        console.names(check.id for check in listed)
        return
    lines = [[check.id, check.section, check.title] for check in listed]
    headers = ["CHECK", "SECTION", "MAKES SURE THAT"]
    if output == console.WIDE:
        headers.append("NEEDS")
        lines = [
            [*line, ",".join(check.needs) or "-"] for line, check in zip(lines, listed, strict=True)
        ]
    console.rows(headers, lines, no_headers=no_headers)
