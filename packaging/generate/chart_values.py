# SPDX-License-Identifier: Apache-2.0
"""The README of the Helm chart, with a table of its values.

The description of a value is the comment above its key in values.yaml, up to an empty line; the
allowed words are those of values.schema.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = Path(__file__).parents[1] / "helm/gpuhook"
README = "packaging/helm/gpuhook/README.md"
_DOCS = "https://github.com/gpuhook/gpuhook/blob/main/"
_LONGEST = 40  # characters of a default in the table
_SEVERAL = ("resources", "securityContext")  # objects of Kubernetes, documented as a whole
_HEAD = """\
<!-- Generated from values.yaml and values.schema.json: make generate -->
# gpuhook

{description}.

The chart runs gpuhook's device plugin on each node with NVIDIA GPUs, and on nodes with AMD GPUs if
`amd.nodes` says so. If you want, it also runs an installer that copies gpuhook to the nodes and
configures their container engines.

    kubectl create namespace gpuhook
    kubectl label namespace gpuhook pod-security.kubernetes.io/enforce=privileged
    helm install gpuhook packaging/helm/gpuhook --namespace gpuhook

`packaging/helm/gpuhook` is the chart in a checkout; that of a release is
`oci://ghcr.io/gpuhook/charts/gpuhook`. The [guide]({docs}docs/how-to/kubernetes.md) describes the
steps, the privileges and the upgrade; [migration]({docs}docs/how-to/migration.md) maps the keys of
NVIDIA's charts, whose names also work here. Kubernetes {kubernetes}, Helm 3.

## Values

A name or a value that the chart does not have is refused: `values.schema.json` lists all of them.

| value | default | |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class ChartValue:
    """A value: its path, its default as YAML, its description, and the words that it accepts."""

    path: str
    default: str
    description: str
    words: tuple[str, ...]
    is_section: bool = False


def files() -> dict[str, str]:
    """Return the README by its path. ValueError for a value without a description."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    head = _HEAD.format(
        description=chart["description"],
        docs=_DOCS,
        kubernetes=chart["kubeVersion"].removesuffix("-0").replace(">=", "from ") + " on",
    )
    found = list(values())
    bare = [one.path for one in found if not (one.description or one.is_section)]
    if bare:
        raise ValueError(f"values.yaml has no comment above {', '.join(bare)}")
    return {README: head + "".join(map(_row, found))}


def values() -> Iterator[ChartValue]:
    """Yield the values of the chart in the order of values.yaml."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    yield from _values(yaml.compose(text), schema, schema, text.splitlines(), "")


def _values(
    node: Any, schema: dict[str, Any], root: dict[str, Any], lines: list[str], prefix: str
) -> Iterator[ChartValue]:
    for key, value in node.value:
        path, own = prefix + key.value, _resolved(schema["properties"][key.value], root)
        comment = _comment(lines, key.start_mark.line, key.start_mark.column)
        if own.get("properties") and key.value not in _SEVERAL and value.value:
            if comment:
                yield ChartValue(path, "", comment, (), is_section=True)
            yield from _values(value, own, root, lines, f"{path}.")
        else:
            default = json.dumps(yaml.safe_load(yaml.serialize(value)))
            yield ChartValue(path, default, comment, _words(own, root))


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        schema = found
    return schema


def _words(schema: dict[str, Any], root: dict[str, Any]) -> tuple[str, ...]:
    """Return the words that a value, or an item of its list, accepts; () if any is accepted."""
    choices = [schema, *(_resolved(one, root) for one in schema.get("oneOf", ()))]
    choices += [_resolved(one["items"], root) for one in choices if "items" in one]
    found = [word for one in choices for word in one.get("enum", ()) if word not in {None, ""}]
    return tuple(dict.fromkeys(map(str, found)))


def _comment(lines: list[str], line: int, column: int) -> str:
    """Return the comment above a line, up to its first empty line, as one paragraph."""
    start = " " * column + "#"
    first = line
    while first > 0 and lines[first - 1].startswith(start):
        first -= 1
    found: list[str] = []
    for text in lines[first:line]:
        words = text.strip().removeprefix("#").strip()
        if not words:
            break
        found.append(words)
    return " ".join(found)


def _row(value: ChartValue) -> str:
    text = value.description.replace("|", "\\|")
    if value.words:
        text += f" One of {', '.join(f'`{word}`' for word in value.words)}."
    if value.is_section:
        return f"| **`{value.path}`** | | {text} |\n"
    default = f"`{value.default}`" if len(value.default) <= _LONGEST else "see values.yaml"
    return f"| `{value.path}` | {default} | {text} |\n"
