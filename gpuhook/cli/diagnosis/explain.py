# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain`: which GPUs a container requests and gets, and why."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import command_sections, container_options, node_options, parameters
from gpuhook.errors import GpuhookError
from gpuhook.explain import (
    error_codes,
    explain_document,
    explain_graph,
    explain_inputs,
    manifest_questions,
    node_context,
    question,
    simulate,
)
from gpuhook.explain.text import explain_text
from gpuhook.host import console, system_mounts
from gpuhook.host.hot import settings
from gpuhook.live import container_worker
from gpuhook.node import settings_file
from gpuhook.request import parse
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.explain.claims.claim_objects import ClaimManifest
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.question import Question

TEXT, WIDE, DIFF, DOT = "text", "wide", "diff", "dot"
_MOUNTS = "/var/run/nvidia-container-devices"


def _paths(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths; a usage error for one that is not absolute."""
    for path in value:
        if not path.startswith("/"):
            raise click.BadParameter(f"{path!r} is not an absolute path", ctx, param)
    return value


def _pairs(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Return the pairs of a repeatable NAME=VALUE option; else a usage error."""
    pairs = [entry.partition("=") for entry in value]
    wrong = [entry for entry, (name, equals, _) in zip(value, pairs) if not name or not equals]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not {param.metavar}", ctx, param)
    return {name: text for name, _, text in pairs}


@click.command(cls=command_sections.SectionedCommand)
@container_options.named
@click.argument(
    "what",
    required=False,
    callback=parameters.not_empty,
    shell_complete=container_options.running,
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    callback=parameters.not_empty,
    help="Explain this file instead of WHAT, as in `kubectl apply -f`; - is standard input.",
)
@click.option(
    "-e",
    "--env",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_pairs,
    help="A variable of the container, as in `docker run -e`; repeatable. Takes precedence over "
    "WHAT, and can be used without WHAT. For a pod, it is a variable of the image.",
)
@click.option(
    "--annotation",
    "annotations",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="An annotation of the container, such as cdi.k8s.io/x=nvidia.com/gpu=0; repeatable.",
)
@click.option(
    "--mount",
    "mounts",
    metavar="PATH",
    multiple=True,
    callback=_paths,
    help=f"A mount of /dev/null at this path, such as {_MOUNTS}/0; repeatable.",
)
@click.option("--privileged", is_flag=True, help="The container is privileged.")
@parameters.output(
    TEXT,
    WIDE,
    console.JSON,
    console.YAML,
    help=(
        "text: the explanation; wide: the explanation with all files and alternatives; json, "
        "yaml: a document."
    ),
)
@click.option("--diff", "is_diff", is_flag=True, help="Print only the changes to config.json.")
@click.option("--dot", "is_dot", is_flag=True, help="Print only a graph for Graphviz's dot.")
@click.option(
    "--plugin-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The device plugin's configuration, which defines the resources of pods. Default: the "
    "plugin's defaults.",
)
@parameters.class_files
@container_options.state_root
@node_options.node_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    *,
    what: str | None,
    filename: str | None,
    env: dict[str, str],
    annotations: dict[str, str],
    mounts: tuple[str, ...],
    privileged: bool,
    output: str,
    is_diff: bool,
    is_dot: bool,
    state_roots: tuple[str, ...],
    plugin_config: str | None,
    class_files: tuple[str, ...],
    **node: Any,
) -> None:
    """Explain which GPUs a container requests and gets, and why, step by step.

    WHAT is one of: the directory of a bundle; a config.json; an image's configuration (docker image
    inspect, skopeo inspect --config); a Kubernetes manifest (a pod, a deployment, a ResourceClaim,
    kubectl get -o yaml); `-` for one of these on standard input; a running CONTAINER; or an error
    code such as GH1102. Without WHAT, the options describe a container. For a running container
    that got its GPUs from its engine's CDI support or a vendor's stack, the output says so.

    By default, the node is this machine: its CDI specs, or the spec that generate-cdi would
    write now. --inventory selects another node, and --driver-root the node at that root. The
    scheduling of a pod is compared with the labels that gpuhook writes, or with a Node in the
    manifest. For a claim, the output has the verdict on each device of the node for each request,
    and the selector that excludes it. Nothing is changed: the code of gpuhook-runtime edits a copy
    of config.json and only simulates changes to the root file system.

    \b
    Examples:
      gpuhook explain --env NVIDIA_VISIBLE_DEVICES=0
      docker image inspect IMAGE | gpuhook explain - --env NVIDIA_VISIBLE_DEVICES=all
      gpuhook explain -f pod.yaml --inventory h100x8
      gpuhook explain 3f2a9c --diff
      gpuhook explain /run/bundle --dot | dot -Tsvg > request.svg
      gpuhook explain GH1102

    The exit status is 1 if a container would not start on the node.
    """  # noqa: D301 # click keeps the lines after this mark
    if filename is not None:
        what = _file(what, filename)
    form = _form(ctx, output, is_diff=is_diff, is_dot=is_dot)
    if what is not None and error_codes.is_code(what) and not explain_inputs.is_present(what):
        if form in (DIFF, DOT):
            raise click.UsageError(f"a code has no --{form}")
        _print_code(error_codes.document(what), output)
        return
    system_mounts.require()
    is_any = bool(env or annotations or mounts)
    asked, manifest = _questions(what, state_roots, has_classes=bool(class_files), is_any=is_any)
    target = _explained_node(ctx, node)
    if manifest or any(one.asked or _has_requirements(one) for one in asked):
        load = partial(node_options.load_node, **node, require_nodes=False)
        target = node_context.with_facts(target, load)
    host_root = node["host_root"] if target.is_here else None
    claims = None
    if manifest is not None:
        from gpuhook.explain.claims import claim_questions  # it loads the code of claims

        asked, claims, target = claim_questions.explained_claims(
            asked, manifest, target, plugin_config, class_files
        )
    image_env = [*map("=".join, env.items())]
    asked = manifest_questions.allotted(asked, target, plugin_config, image_env, host_root)
    asked = [
        question.with_additions(one, env, annotations, mounts, privileged=privileged)
        for one in asked
    ]
    with console.progress("explaining"):
        document, lines = _explained(asked, target, claims, is_diff=form == DIFF)
    if form == DIFF:
        for line in lines:
            click.echo(line)
    else:
        _print(document, form)
    ctx.exit(0 if explain_document.is_well(document) else 1)


def _has_requirements(asked: Question) -> bool:
    """Return whether the image requires something of a vendor's driver."""
    environment = parse.environment(asked.spec)
    judged = (one.requests.judged_requirements(environment, None, ()) for one in vendors())
    return any(one.items for one in judged)


def _explained(
    asked: Sequence[Question],
    target: ExplainedNode,
    claims: list[dict[str, Any]] | None,
    *,
    is_diff: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Return the document of the answers, and with `is_diff` the lines of the difference."""

    def work() -> tuple[dict[str, Any], list[str]]:
        found = [simulate.simulate(one, target) for one in asked]
        changes = [line for one in found if is_diff for line in simulate.difference(one)]
        return explain_document.explain_document(found, target, claims), changes

    roots = [one.where for one in asked if one.has_root]
    return container_worker.call_in_child(", ".join(roots), work) if roots else work()


def _file(what: str | None, filename: str) -> str:
    """Return the path of --filename, which is not the name of a container or an error code."""
    if what is not None:
        raise click.UsageError("pass WHAT or --filename, not both")
    if filename != "-" and not os.path.exists(filename):
        raise click.BadParameter(f"{filename!r} does not exist", param_hint="'--filename'")
    return filename if "/" in filename or filename == "-" else f"./{filename}"


def _form(ctx: click.Context, output: str, *, is_diff: bool, is_dot: bool) -> str:
    """Return the output format; a usage error for two of --diff, --dot and -o."""
    named = ctx.get_parameter_source("output") is click.core.ParameterSource.COMMANDLINE
    forms = [DIFF] * is_diff + [DOT] * is_dot
    if len(forms) + named > 1:
        raise click.UsageError("--diff, --dot and -o cannot be used together")
    return forms[0] if forms else output


def _questions(
    what: str | None, state_roots: tuple[str, ...], *, has_classes: bool, is_any: bool
) -> tuple[list[Question], ClaimManifest | None]:
    """Return the questions, and the claims of a manifest that has some."""
    if what is not None:
        return explain_inputs.named_questions(what, state_roots, has_classes=has_classes)
    if not is_any:
        raise click.UsageError("pass WHAT to explain, -f pod.yaml, or --env")
    return [question.imagined(question.OPTIONS, "the container described by the options")], None


def _explained_node(ctx: click.Context, node: dict[str, Any]) -> ExplainedNode:
    """Return the node that the options select, else this node."""
    load = partial(node_options.load_node, **node, require_nodes=False)
    others = ("inventory", "driver_root", "dev_root", "nvml_library")
    sources = {name: ctx.get_parameter_source(name) for name in others}
    # Variables of the environment describe this node.
    selected = [name for name in others if sources[name] is click.core.ParameterSource.COMMANDLINE]
    chosen, failure = settings.Settings(), None
    if node["inventory"] is not None:
        return node_context.other_node(load(), chosen, node["inventory"])
    try:
        chosen = settings_file.of_node()
    except GpuhookError as error:
        failure = error
    if selected:
        roots = node["host_root"], node["dev_root"] or node["host_root"]
        where = f"the node of --{selected[0].replace('_', '-')}"
        return node_context.selected_node(chosen, failure, load, where, roots)
    return node_context.this_node(chosen, failure, load)


def _print(document: dict[str, Any], output: str) -> None:
    if output == DOT:
        for line in explain_graph.lines(document):
            click.echo(line)
    elif output in (TEXT, WIDE):
        for line in explain_text.lines(document, is_wide=output == WIDE):
            click.echo(line)
    else:
        console.document(document, output)


def _print_code(document: dict[str, Any], output: str) -> None:
    if output not in (TEXT, WIDE):
        console.document(document, output)
        return
    for line in error_codes.lines(document):
        click.echo(line)
