# SPDX-License-Identifier: Apache-2.0
"""`gpuhook support-bundle`: a node in one file, as far as an allow-list goes."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from gpuhook.cli import document_output
from gpuhook.cli.options import container_options, doctor_target, node_options, parameters
from gpuhook.doctor import doctor_document
from gpuhook.doctor.check import FAILED, WARNING
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.doctor.reading_collectors import ReadingPlace
from gpuhook.host import console, output_file
from gpuhook.node import node_readings
from gpuhook.support_bundle import bundle_archive, bundle_contents, log_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.examination import Examination
    from gpuhook.support_bundle.bundle_contents import Bundle

SCHEMA = "gpuhook/support-bundle-report/v1"
_STANDARD_OUTPUT = "-"
_PATIENCE = 20.0  # seconds for a command of ours
_MOST_INSPECTED, _MOST_HEALTHY = 32, 3
_EXAMPLES = """
\b
Examples:
  gpuhook support-bundle
  gpuhook support-bundle --dry-run
  gpuhook support-bundle --file /tmp/node7.tar.gz --no-logs
  kubectl debug node/NAME ... -- gpuhook support-bundle --root /host --file /host/tmp/b.tar.gz
  gpuhook doctor --from /tmp/node7.tar.gz
"""


@click.command(name="support-bundle", epilog=_EXAMPLES)
@click.option(
    "-f",
    "--file",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to write it. Default: gpuhook-bundle-NODE-TIME.tar.gz in this directory.",
)
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(file_okay=False),
    show_envvar=True,
    help="Look at the files of a node that lie in DIR, as `gpuhook doctor --root`.",
)
@click.option("--no-logs", is_flag=True, help="Leave out the lines of logs.")
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="List the files that a bundle would have, with their sizes and the keys that are kept and "
    "left out, and write nothing.",
)
@parameters.output(
    "table", "json", "yaml", "name", help="What is printed of it; name is the file's alone."
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
    """Collect what somebody needs to find out what is wrong with this node, in one file.

    All that doctor looks at: files of driver, CDI specs, engines, kubelet; the inventory, versions,
    units, processes, what the cluster says of the node. What doctor, ps and inspect find, and the
    last lines of gpuhook's own logs.

    An allow-list names the files, and the keys whose values are kept: other values are replaced by
    the words "left out". User names, home directories and /etc/passwd are never included. --dry-run
    lists all of it. The file is readable by its owner alone.

    `gpuhook doctor --from FILE` looks at the node again, anywhere. Run it as root: to others much
    of a node is hidden. Nothing on the node is changed.
    """
    if path in ("", _STANDARD_OUTPUT):
        raise click.BadParameter("a bundle goes to a file: name one", param_hint="'--file'")
    if path is not None and not is_dry:
        output_file.require_place(path)  # not after a minute's work
    where = ReadingPlace(host_root=host_root, **place)
    node = doctor_target.of_options(root, where, state_roots)
    with console.progress("looking at the node"):
        looked = node.look()
        seen = bundle_contents.recording_node(looked)
        found = examine(seen, checks())
    documents: dict[str, Any] = {
        "doctor.json": doctor_document.doctor_document(
            found, root or host_root, is_live=node.is_live
        )
    }
    left_out: list[tuple[str, str]] = []
    if node.is_live and root is None:
        options = [f"--state-root={root}" for root in state_roots]
        if where.nvml_library:
            options.append(f"--nvml-library={where.nvml_library}")
        with console.progress("asking ps and inspect"):
            _add_commands(looked, options, documents, left_out)
    texts: dict[str, str] = {}
    if not no_logs:
        with console.progress("reading the logs"):
            texts, silent = log_lines.log_lines(looked, is_live=node.is_live and root is None)
        left_out += silent
    bundle = bundle_contents.collect(seen, documents, texts, left_out)
    if is_dry:
        _print_dry(bundle, found, output, no_headers=no_headers)
        return
    path = _name(bundle) if path is None else path
    bundle_archive.write(path, bundle.members, bundle.made)
    _print(path, bundle, found, output, no_headers=no_headers)


def _add_commands(
    node: ExaminedNode,
    options: list[str],
    documents: dict[str, Any],
    left_out: list[tuple[str, str]],
) -> None:
    """Add what commands of gpuhook say of this node, with these options."""
    commands = {"ps.json": ["ps", "-o", "json", *options]}
    wrong, healthy = _containers(node)
    chosen = [*wrong[:_MOST_INSPECTED], *healthy[:_MOST_HEALTHY]]
    if len(chosen) < len(wrong) + len(healthy):
        others = len(wrong) + len(healthy) - len(chosen)
        why = f"{others} more containers, {len(wrong[_MOST_INSPECTED:])} of them with a finding"
        left_out.append(("inspect", why))
    for identity in chosen:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in identity)[:100]
        commands[f"inspect/{name}.json"] = ["inspect", "-o", "json", *options, "--", identity]
    for name, told, trouble in document_output.documents(commands, _PATIENCE):
        if trouble:
            left_out.append((name, trouble))
        else:
            documents[name] = told


def _containers(node: ExaminedNode) -> tuple[list[str], list[str]]:
    """Return the ids of running containers: those that something is wrong with, and the others."""
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
    if output == console.NAME:
        console.names([path])
    elif output in (console.JSON, console.YAML):
        console.document(_report(path, bundle, found), output)
    else:
        lines = [[str(one["count"]), str(one["what"]), str(one["where"])] for one in bundle.removed]
        if lines:
            console.rows(["LEFT OUT", "KEY", "WHERE"], lines, no_headers=no_headers)
    for one in bundle.left_out:
        console.say(f"left out: {one['what']}: {one['why']}")
    removed = sum(one["count"] for one in bundle.removed)
    size = os.stat(path).st_size >> 10
    console.say(f"{path}: {len(bundle.members)} files, {size} KiB; values left out: {removed}")
    failed, doubtful = len(found.of(FAILED)), len(found.of(WARNING))
    console.say(f"doctor: {failed} failed, {doubtful} warnings")


def _print_dry(bundle: Bundle, found: Examination, output: str, *, no_headers: bool) -> None:
    """Print what a bundle would have: each file, its size, the keys kept and left out."""
    if output == console.NAME:
        console.names(list(bundle.members))
    elif output in (console.JSON, console.YAML):
        document = _report(None, bundle, found)
        document["sizes"] = {name: len(content) for name, content in bundle.members.items()}
        document["kept"] = bundle.kept
        console.document(document, output)
    else:
        lines = [
            [name, str(len(content)), _keys(bundle.kept, name), _keys(bundle.removed, name)]
            for name, content in bundle.members.items()
        ]
        console.rows(["FILE", "BYTES", "KEPT", "LEFT OUT"], lines, no_headers=no_headers)
    for one in bundle.left_out:
        console.say(f"left out: {one['what']}: {one['why']}")
    console.say("nothing was written")


def _keys(counted: list[dict[str, Any]], member: str) -> str:
    """Return the keys of a member, and of the readings in it."""
    keys = {one["what"]: None for one in counted if one["where"].partition(": ")[0] == member}
    return ", ".join(keys) or "-"


def _report(path: str | None, bundle: Bundle, found: Examination) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": path,
        "bytes": os.stat(path).st_size if path is not None else None,
        "members": list(bundle.members),
        "removed": bundle.removed,
        "left_out": bundle.left_out,
        "failed": [one.check.id for one in found.of(FAILED)],
    }
