# SPDX-License-Identifier: Apache-2.0
"""The launchers of a runtime tree: the only files in it that say where it is."""

from __future__ import annotations

import os

from gpuhook.errors import fault
from gpuhook.install import directory_copy

OF_THE_IMAGE = ("nvidia-device-plugin", "config-manager")  # the names that the GPU Operator calls
_LONGEST = 120  # bytes of a script's first line: kernels before 5.1 take 127
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+~,:=@")


def fill(tree: str, at: str, programs: str, *, is_image: bool = False) -> None:
    """Write the launchers of the tree at `tree`, to be used at `at`.

    `programs` is the directory by which others call them, and which outlives this tree. Raises
    GH2102 for a path that no launcher can have, and OSError.
    """
    require_usable(at)
    require_usable(programs)
    source = os.path.join(tree, "launchers")
    for directory in sorted(os.listdir(source)):
        directory_copy.make_directories(os.path.join(tree, directory))
        for name in sorted(os.listdir(os.path.join(source, directory))):
            if is_image or name not in OF_THE_IMAGE:
                _write(os.path.join(source, directory, name), tree, at, programs)


def _write(template: str, tree: str, at: str, programs: str) -> None:
    with open(template, encoding="utf-8") as file:
        text = file.read()
    values = {"TREE": at, "LIB": f"{at}/lib/gpuhook"}
    # The hook's neighbours are those of its own tree: a container keeps the version it began with.
    values["BIN"] = programs if os.path.basename(template) == "gpuhook" else f"{at}/bin"
    for word, value in values.items():
        text = text.replace(f"@{word}@", value)
    path = os.path.join(tree, os.path.relpath(template, os.path.join(tree, "launchers")))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)  # noqa: S103 # a program


def require_usable(path: str) -> None:
    """Raise GH2102 for a path that cannot stand in a launcher."""
    if not path.startswith("/") or not _PLAIN.issuperset(path):
        raise fault("GH2102", path=path, reason="only plain letters and no spaces may be in it")
    if len(f"#!{path}/libexec/python3 -IS") > _LONGEST:
        raise fault("GH2102", path=path, reason="it is too long for the first line of a script")
