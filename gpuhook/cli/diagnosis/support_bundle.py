# SPDX-License-Identifier: Apache-2.0
"""`gpuhook support-bundle`: the facts of a node that an allow-list names, in one file."""

from __future__ import annotations

import io
import json
import os
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click

from gpuhook.cli import main
from gpuhook.cli.diagnosis import doctor_target
from gpuhook.cli.options import command_sections, container_options, node_options, parameters
from gpuhook.doctor import doctor_document
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.errors import printable
from gpuhook.host import console, output_file, worker_pool
from gpuhook.host.worker import NoAnswerError
from gpuhook.node_facts import kubelet_facts
from gpuhook.node_facts.sources import node_readings
from gpuhook.support_bundle import bundle_archive, bundle_contents, bundle_report, log_lines
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from gpuhook.cli.diagnosis.doctor_target import DoctorTarget
    from gpuhook.doctor.examination import Examination
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.support_bundle.bundle_contents import Bundle

_STANDARD_OUTPUT = "-"
_COMMAND_SECONDS = 20.0  # the deadline of a command of gpuhook
_AT_ONCE = min(4, os.cpu_count() or 1)
_MOST_INSPECTED, _MOST_HEALTHY = 32, 3
_LONGEST_ERROR = 400
_MAX_LINE = 4096
_TEXT, _TABLE = "text", "table"
_EXAMPLES = """
\b
Examples:
  gpuhook support-bundle
  gpuhook support-bundle --dry-run
  gpuhook support-bundle --file /tmp/node7.tar.gz --no-logs
  kubectl debug node/NAME ... -- gpuhook support-bundle --root /host --file /host/tmp/b.tar.gz
  gpuhook doctor --from /tmp/node7.tar.gz
"""


@click.command(name="support-bundle", cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@click.option(
    "-f",
    "--output-file",
    "--file",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The file to write. Default: gpuhook-bundle-NODE-TIME.tar.gz in this directory.",
)
@click.option(
    "--root",
    metavar="DIR",
    callback=parameters.not_empty,
    type=click.Path(file_okay=False),
    show_envvar=True,
    help="Collect from the node whose files are in DIR, as in `gpuhook doctor --root`.",
)
@click.option("--no-logs", is_flag=True, help="Leave out log lines.")
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="List the files of the bundle, their sizes, and the keys that are kept or left out, "
    "without writing anything.",
)
@parameters.output(
    _TEXT,
    _TABLE,
    console.JSON,
    console.YAML,
    console.NAME,
    help="The report to print. text: a summary; table: each key that was left out; name: only the "
    "path of the file. With --dry-run, text is a table.",
)
@parameters.no_headers
@container_options.state_root
@node_options.place_options
def support_bundle(
    *,
    path: str | None,
    root: str | None,
    no_logs: bool,
    is_dry: bool,
    output: str,
    no_headers: bool,
    state_roots: tuple[str, ...],
    host_root: str,
    **place: Any,
) -> None:
    """Collect everything needed to diagnose this node in one file.

    The bundle contains everything that doctor reads: files of the driver, CDI specs, engines and
    the kubelet, the inventory, versions, units, processes, and the cluster's Node object. It also
    contains the output of doctor, ps, inspect and dra status, and the last lines of gpuhook's logs.

    An allow-list defines which files are included and which values are kept; all other values are
    replaced by "left out". User names, home directories and /etc/passwd are never included.
    --dry-run lists the contents. Only the owner of the file can read it.

    `gpuhook doctor --from FILE` checks the node from any machine. Run this command as root: many
    files of a node are readable only by root. It changes nothing on the node.
    """
    if path in ("", _STANDARD_OUTPUT):
        raise click.BadParameter("the bundle is a file: pass a path", param_hint="'--output-file'")
    if path is not None and not is_dry:
        output_file.require_place(path)  # fail now, not after a minute
    where = doctor_target.node_place(host_root, **place)
    node = doctor_target.target_of_options(root, where, state_roots)
    options = [f"--state-root={one}" for one in state_roots]
    options += [f"--nvml-library={where.library}"] if where.library else []
    bundle, found = _collected(node, root, host_root, options, has_logs=not no_logs)
    if is_dry:
        _print_dry(bundle, found, output, no_headers=no_headers)
        return
    path = path or _name(bundle)
    bundle_archive.write(path, bundle.members, bundle.made)
    _print(path, bundle, found, output, no_headers=no_headers)


def _collected(
    node: DoctorTarget, root: str | None, host_root: str, options: list[str], *, has_logs: bool
) -> tuple[Bundle, Examination]:
    """Return the bundle of a node, and doctor's results; `options` are those of ps and inspect."""
    with console.progress("looking at the node"):
        looked = node.look()
        seen = bundle_contents.recording_node(looked)
        found = examine(seen, checks())
    report = doctor_document.doctor_document(found, root or host_root, is_live=node.is_live)
    documents: dict[str, Any] = {"doctor.json": report}
    texts: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    is_here = node.is_live and root is None
    if is_here:
        with console.progress("running ps and inspect"):
            _add_commands(looked, options, documents, left_out)
    if has_logs:
        with console.progress("reading the logs"):
            texts, silent = log_lines.log_lines(looked, is_live=is_here)
        left_out += silent
    return bundle_contents.collect(seen, documents, texts, left_out), found


def _add_commands(
    node: ExaminedNode,
    options: list[str],
    documents: dict[str, Any],
    left_out: list[tuple[str, str]],
) -> None:
    """Add the documents of ps and inspect, with these options, and of dra status."""
    commands = {"ps.json": ["ps", "-o", "json", *options]}
    kubelet = kubelet_facts.kubelet(node).directory
    if any(node.tree.names(f"{kubelet}/plugins/{vendor.dra_driver}") for vendor in vendors()):
        commands["dra-status.json"] = ["dra", "status", "-o", "json", "--kubelet-root", kubelet]
    wrong, healthy = _containers(node)
    chosen = [*wrong[:_MOST_INSPECTED], *healthy[:_MOST_HEALTHY]]
    if len(chosen) < len(wrong) + len(healthy):
        others = len(wrong) + len(healthy) - len(chosen)
        why = f"{others} more containers, {len(wrong[_MOST_INSPECTED:])} of them with findings"
        left_out.append(("inspect", why))
    for identity in chosen:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in identity)[:100]
        commands[f"inspect/{name}.json"] = ["inspect", "-o", "json", *options, "--", identity]
    for name, document, trouble in _command_documents(commands, _COMMAND_SECONDS):
        if trouble:
            left_out.append((name, trouble))
        else:
            documents[name] = document


def _containers(node: ExaminedNode) -> tuple[list[str], list[str]]:
    """Return the ids of running containers: those with a finding, and the others."""
    known = node.readings.document(node_readings.CONTAINERS)
    wrong: list[str] = []
    healthy: list[str] = []
    for one in known["containers"] if known else ():
        (wrong if one["missing"] or one["findings"] else healthy).append(one["id"])
    return wrong, healthy


def _name(bundle: Bundle) -> str:
    node = "".join(c if c.isalnum() or c in "-." else "-" for c in os.uname().nodename)
    return (
        f"gpuhook-bundle-{node}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(bundle.made))}.tar.gz"
    )


def _print(path: str, bundle: Bundle, found: Examination, output: str, *, no_headers: bool) -> None:
    if output == _TEXT:
        for line in bundle_report.summary(path, bundle, found):
            click.echo(printable(line, _MAX_LINE))
        return
    if output == console.NAME:
        console.names([path])
    elif output in (console.JSON, console.YAML):
        console.document(bundle_report.report(path, bundle, found), output)
    else:
        lines = [[str(one["count"]), str(one["what"]), str(one["where"])] for one in bundle.removed]
        if lines:
            console.rows(["LEFT OUT", "KEY", "WHERE"], lines, no_headers=no_headers)
    for one in bundle.left_out:
        console.say(f"left out: {one['what']}: {one['why']}")
    file, values, doctor = bundle_report.totals(path, bundle, found)
    console.say(f"{file}; {values}")
    console.say(doctor)


def _print_dry(bundle: Bundle, found: Examination, output: str, *, no_headers: bool) -> None:
    """Print the contents of a bundle: each file, its size, the keys kept and left out."""
    if output == console.NAME:
        console.names(list(bundle.members))
    elif output in (console.JSON, console.YAML):
        document = bundle_report.report(None, bundle, found)
        document["sizes"] = {name: len(content) for name, content in bundle.members.items()}
        document["kept"] = bundle.kept
        console.document(document, output)
    else:
        lines = [
            [
                name,
                str(len(content)),
                bundle_report.keys(bundle.kept, name),
                bundle_report.keys(bundle.removed, name),
            ]
            for name, content in bundle.members.items()
        ]
        console.rows(["FILE", "BYTES", "KEPT", "LEFT OUT"], lines, no_headers=no_headers)
    for one in bundle.left_out:
        console.say(f"left out: {one['what']}: {one['why']}")
    console.say("nothing was written")


def _command_documents(
    commands: Mapping[str, Sequence[str]], seconds: float
) -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each command, the JSON document that it prints, and "".

    The document is None, with a reason, if the command prints none within `seconds`. The commands
    run in child processes of this interpreter, which has their modules loaded.
    """
    answers = worker_pool.each(
        lambda name: _document_of(commands[name]), list(commands), seconds, _AT_ONCE
    )
    for name, answer in console.counted(answers, len(commands), "commands"):
        if isinstance(answer, NoAnswerError):
            yield name, None, answer.reason
        else:
            yield name, *answer


def _document_of(words: Sequence[str]) -> tuple[Any, str]:
    """Return the JSON document that a command prints, or None and the error."""
    data, talk = io.StringIO(), io.StringIO()
    status: object = 0
    with redirect_stdout(data), redirect_stderr(talk):
        try:
            main.main(list(words), prog_name="gpuhook")
        except SystemExit as end:
            status = end.code
    try:
        return json.loads(data.getvalue()), ""
    except ValueError as error:
        return None, talk.getvalue().strip()[:_LONGEST_ERROR] or f"exit status {status}: {error}"
