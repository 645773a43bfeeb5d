# SPDX-License-Identifier: Apache-2.0
"""A runtime tree, built by packaging/image/tree.py: gpuhook, Python, loader, libraries, shell.

Its launchers are the only files with its own path. The driver file of an installed tree has the
driver's roots for its programs. It is in the tree, not in /etc/gpuhook/config.yaml: that file has
another owner, and removing the tree removes this one.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass

import gpuhook
from gpuhook.errors import fault
from gpuhook.host import documents, installed_roots
from gpuhook.host.hot import files
from gpuhook.install.mounted_host import make_directories

SCHEMA = "gpuhook/tree/v1"
DESCRIPTION = "tree.json"
_NAME = re.compile(r"[0-9A-Za-z.+~-]+")


@dataclass(frozen=True, slots=True)
class RuntimeTree:
    """A tree at `path`; `digest` is the SHA-256 of its content."""

    path: str
    version: str
    digest: str

    @property
    def name(self) -> str:
        """The name of the tree's directory on a host."""
        return f"{self.version}-{self.digest[:12]}"


def read_tree(path: str) -> RuntimeTree:
    """Return the tree at `path`. Raises GH2101 if it is not a tree."""
    try:
        with open(os.path.join(path, DESCRIPTION), "rb") as file:
            document = documents.parse_json_object(file.read())
    except FileNotFoundError as error:
        raise fault("GH2101", path=path, reason=f"it has no {DESCRIPTION}") from error
    except (OSError, ValueError) as error:
        raise fault("GH2101", path=path, reason=str(error)) from error
    version, digest = str(document.get("version", "")), str(document.get("digest", ""))
    if document.get("schema") != SCHEMA or not _NAME.fullmatch(version) or len(digest) != 64:
        raise fault(
            "GH2101", path=path, reason=f"its {DESCRIPTION} does not have the schema {SCHEMA}"
        )
    return RuntimeTree(path, version, digest)


def own_tree() -> str:
    """Return the path of the tree from which this program runs, if it does."""
    library = os.path.dirname(os.path.dirname(os.path.abspath(gpuhook.__file__)))
    return os.path.dirname(os.path.dirname(library))


OF_THE_IMAGE = ("nvidia-device-plugin", "config-manager")  # the names that the GPU Operator calls
_LONGEST = 120  # bytes of a script's first line: kernels before 5.1 accept 127
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+~,:=@")


def write_launchers(tree: str, at: str, programs: str, *, is_image: bool = False) -> None:
    """Write the launchers of the tree at `tree`, for use at `at`.

    `programs` is the directory by which other programs call them, and which remains when this
    version is removed. Raises GH2102 for a path that a launcher cannot have, and OSError.
    """
    require_launcher_path(at)
    require_launcher_path(programs)
    source = os.path.join(tree, "launchers")
    for directory in sorted(os.listdir(source)):
        make_directories(os.path.join(tree, directory))
        for name in sorted(os.listdir(os.path.join(source, directory))):
            if is_image or name not in OF_THE_IMAGE:
                _write_launcher(os.path.join(source, directory, name), tree, at, programs)


def _write_launcher(template: str, tree: str, at: str, programs: str) -> None:
    with open(template, encoding="utf-8") as file:
        text = file.read()
    values = {"TREE": at, "LIB": f"{at}/lib/gpuhook"}
    # The hook calls the programs in its tree: a container keeps the version of its start.
    values["BIN"] = programs if os.path.basename(template) == "gpuhook" else f"{at}/bin"
    for word, value in values.items():
        text = text.replace(f"@{word}@", value)
    path = os.path.join(tree, os.path.relpath(template, os.path.join(tree, "launchers")))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)  # noqa: S103 # a program


def require_launcher_path(path: str) -> None:
    """Raise GH2102 for a path that a launcher cannot have."""
    if not path.startswith("/") or not _PLAIN.issuperset(path):
        raise fault(
            "GH2102",
            path=path,
            reason="it may only contain plain ASCII letters, digits and ./_-+~,:=@",
        )
    if len(f"#!{path}/libexec/python3 -IS") > _LONGEST:
        raise fault("GH2102", path=path, reason="it is too long for the first line of a script")


def driver_text(root: str, dev_root: str) -> str:
    """Return the content of the driver file; "" without roots, for no file."""
    chosen = {"root": root, "devRoot": dev_root}
    document = {key: value for key, value in chosen.items() if value}
    return json.dumps(document) + "\n" if document else ""


def has_driver_file(tree: str, content: str) -> bool:
    """Return whether the tree at `tree` has this driver file, or no file for ""."""
    try:
        with open(_driver_path(tree), encoding="utf-8") as file:
            return file.read() == content
    except FileNotFoundError:
        return not content
    except (OSError, ValueError):
        return False


def write_driver_file(tree: str, content: str) -> None:
    """Replace the driver file atomically; remove it for "". Raises OSError."""
    if has_driver_file(tree, content):
        return
    if content:
        files.replace(_driver_path(tree), content.encode(), mode=0o644)
        return
    with suppress(FileNotFoundError):
        os.unlink(_driver_path(tree))


def _driver_path(tree: str) -> str:
    return os.path.join(tree, "lib/gpuhook", installed_roots.FILE)
