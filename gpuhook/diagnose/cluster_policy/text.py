# SPDX-License-Identifier: Apache-2.0
"""The file that a policy is read from, and the values file that it becomes."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from gpuhook.errors import fault, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.cluster_policy.mapping import Converted

STANDARD_INPUT = "standard input"  # its name in what is told
_MAX_SIZE = 1 << 20


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such: the configurations are to be read."""


def _represented(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represented)


def content(path: str) -> bytes:
    """Return what is in a file, "-" for standard input; GH2130 if it cannot be read."""
    named = STANDARD_INPUT if path == "-" else path
    try:
        if path == "-":
            found = sys.stdin.buffer.read(_MAX_SIZE + 1)
        else:
            with open(path, "rb") as stream:
                found = stream.read(_MAX_SIZE + 1)
    except OSError as error:
        raise fault("GH2130", path=named, reason=error.strerror or error) from error
    if len(found) > _MAX_SIZE:
        raise fault("GH2130", path=named, reason="it is larger than 1 MiB")
    return found


def values(found: Converted, path: str) -> str:
    """Return the values file, with the remarks as comments."""
    where = printable(path, 200)
    lines = [f"# Values of gpuhook's chart, by `gpuhook config from-clusterpolicy {where}`."]
    lines.append("# image.repository and image.tag name gpuhook's image in your registry.")
    if found.remarks:
        lines.append("# To look at:")
        lines += [f"#   {printable(remark, 1000)}" for remark in found.remarks]
    body: Any = yaml.dump(found.values, Dumper=_Dumper, sort_keys=False, width=100)
    return "\n".join(lines) + "\n" + (body if found.values else "{}\n")
