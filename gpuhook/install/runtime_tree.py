# SPDX-License-Identifier: Apache-2.0
"""A runtime tree, which packaging/image/tree.py made: gpuhook, Python, loader, libraries, shell."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import gpuhook
from gpuhook.errors import fault
from gpuhook.host import documents

SCHEMA = "gpuhook/tree/v1"
DESCRIPTION = "tree.json"
_NAME = re.compile(r"[0-9A-Za-z.+~-]+")


@dataclass(frozen=True, slots=True)
class RuntimeTree:
    """A tree at `path`; `digest` is of all that is in it."""

    path: str
    version: str
    digest: str

    @property
    def name(self) -> str:
        """Return the name of the directory that has this tree on a host."""
        return f"{self.version}-{self.digest[:12]}"


def at(path: str) -> RuntimeTree:
    """Return the tree at `path`. Raises GH2101 where there is none."""
    try:
        with open(os.path.join(path, DESCRIPTION), "rb") as file:
            known = documents.parse_json_object(file.read())
    except FileNotFoundError as error:
        raise fault("GH2101", path=path, reason=f"it has no {DESCRIPTION}") from error
    except (OSError, ValueError) as error:
        raise fault("GH2101", path=path, reason=str(error)) from error
    version, digest = str(known.get("version", "")), str(known.get("digest", ""))
    if known.get("schema") != SCHEMA or not _NAME.fullmatch(version) or len(digest) != 64:
        raise fault("GH2101", path=path, reason=f"its {DESCRIPTION} is not of {SCHEMA}")
    return RuntimeTree(path, version, digest)


def own() -> str:
    """Return where the tree is that this program runs out of, if it does."""
    library = os.path.dirname(os.path.dirname(os.path.abspath(gpuhook.__file__)))
    return os.path.dirname(os.path.dirname(library))
