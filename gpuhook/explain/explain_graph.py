# SPDX-License-Identifier: Apache-2.0
"""A graph for Graphviz: source of the request -> names -> devices -> device nodes."""

from __future__ import annotations

import json
from typing import Any

from gpuhook.errors import printable
from gpuhook.explain.trace import outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_COLOURS = {"won": "black", "beaten": "gray60", "refused": "firebrick"}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a graph in the DOT language, from the document of explain."""
    yield "digraph explain {"
    yield "  rankdir=LR;"
    yield '  node [shape=box, fontname="sans-serif"];'
    for number, container in enumerate(document["containers"]):
        yield f"  subgraph cluster_{number} {{"
        label = f"{container['where']}\n{outcome.SENTENCES[container['result']]}"
        yield f"    label={_quoted(label)};"
        for line in dict.fromkeys(_container_lines(container, f"{number}/")):
            yield f"    {line}"
        yield "  }"
    yield "}"


def _container_lines(container: dict[str, Any], prefix: str) -> Iterator[str]:
    if not container["sources"]:
        # Graphviz does not draw an empty cluster.
        gpus = [f"GPU {one['index'] or one['gpu']}" for one in container["gpus"]]
        label = "\n".join(gpus) or "no variable, annotation\nor mount names a device"
        yield _node(f"{prefix}gpus", label, style="dashed")
    for source in container["sources"]:
        place = prefix + source["kind"]
        label = f"{source['where']}\n{source['result']}"
        yield _node(place, label, shape="ellipse", color=_COLOURS[source["result"]])
        if source["result"] == "won":
            for name in source["names"]:
                yield _edge(place, f"{prefix}name {name}")
    yield from _extra_lines(container, prefix)
    for device in container["devices"]:
        name = f"{prefix}name {device['name']}"
        colour = "firebrick" if device["fault"] else "black"
        yield _node(name, device["name"], shape="ellipse", color=colour)
        if device["device"]:
            yield from _device_lines(device, name, prefix)
    for spec in container["specs"]:
        place = f"{prefix}spec {spec['spec']}"
        yield _node(place, f"all devices of\n{spec['spec']}", shape="folder")
        for path in spec["nodes"]:
            yield _edge(place, f"{prefix}node {path}")
            yield _node(f"{prefix}node {path}", path)


def _extra_lines(container: dict[str, Any], prefix: str) -> Iterator[str]:
    for number, extra in enumerate(container["extras"]):
        if extra["result"] == "won":
            place = f"{prefix}extra {number}"
            yield _node(
                place, f"{extra['where']}\nin addition", shape="ellipse", color=_COLOURS["won"]
            )
            for name in extra["names"]:
                yield _edge(place, f"{prefix}name {name}")


def _device_lines(device: dict[str, Any], name: str, prefix: str) -> Iterator[str]:
    place = f"{prefix}device {device['device']}"
    yield _node(place, f"{device['device']}\n{_where(device)}", shape="component")
    yield _edge(name, place, "" if device["by"] == "name" else device["by"])
    yield _edge(place, f"{prefix}spec {device['spec']}", "with")
    for path in device["nodes"]:
        yield _node(f"{prefix}node {path}", path)
        yield _edge(place, f"{prefix}node {path}")


def _where(device: dict[str, Any]) -> str:
    return f"{device['spec']}:{device['line']}" if device["line"] else str(device["spec"])


def _node(name: str, label: str, **attributes: str) -> str:
    options = "".join(f", {key}={_quoted(value)}" for key, value in attributes.items())
    return f"{_quoted(name)} [label={_quoted(label)}{options}];"


def _edge(one: str, other: str, label: str = "") -> str:
    return f"{_quoted(one)} -> {_quoted(other)}" + (f" [label={_quoted(label)}];" if label else ";")


def _quoted(text: str) -> str:
    r"""Return a quoted string of DOT, in which a line break is \n."""
    shown = "\n".join(printable(line) for line in text.split("\n"))
    return json.dumps(shown, ensure_ascii=False)
