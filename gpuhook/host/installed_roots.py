# SPDX-License-Identifier: Apache-2.0
"""The driver root and the dev root that `gpuhook node install` was called with."""

from __future__ import annotations

import os

import gpuhook
from gpuhook.host import documents

FILE = "driver.json"  # in the directory that contains this package


def installed_file() -> str:
    """Return the path of the file of `gpuhook node install` for the programs of this tree."""
    package = os.path.dirname(os.path.abspath(gpuhook.__file__))
    return os.path.join(os.path.dirname(package), FILE)


def installed_roots() -> tuple[str, str]:
    """Return the driver root and the dev root of `gpuhook node install`, "" for an unset one."""
    try:
        with open(installed_file(), "rb") as file:
            known = documents.parse_json_object(file.read())
    except (OSError, ValueError):
        return "", ""
    root, dev_root = (known.get(key) for key in ("root", "devRoot"))
    return _absolute(root), _absolute(dev_root)


def _absolute(path: object) -> str:
    return path if isinstance(path, str) and path.startswith("/") else ""
