# SPDX-License-Identifier: Apache-2.0
"""The file of an installed tree that names the driver's roots for the programs of that tree.

It is in the tree and not in /etc/gpuhook/config.yaml: that file has another owner, and removing the
tree removes this one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from gpuhook.host.hot import files
from gpuhook.vendors.nvidia.driver.driver_locations import INSTALLED_FILE


def text(root: str, dev_root: str) -> str:
    """Return the content of the file; "" if neither root is set, and there must be no file."""
    chosen = {"root": root, "devRoot": dev_root}
    document = {key: value for key, value in chosen.items() if value}
    return json.dumps(document) + "\n" if document else ""


def is_current(tree: str, content: str) -> bool:
    """Return whether the tree at `tree` has the file with this content, or has none for ""."""
    try:
        with open(_path(tree), encoding="utf-8") as file:
            return file.read() == content
    except FileNotFoundError:
        return not content
    except (OSError, ValueError):
        return False


def write(tree: str, content: str) -> None:
    """Replace the file of the tree at `tree` atomically; remove it for "". Raises OSError."""
    if is_current(tree, content):
        return
    if content:
        files.replace(_path(tree), content.encode(), mode=0o644)
        return
    with suppress(FileNotFoundError):
        os.unlink(_path(tree))


def _path(tree: str) -> str:
    return os.path.join(tree, "lib/gpuhook", INSTALLED_FILE)
