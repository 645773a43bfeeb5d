# SPDX-License-Identifier: Apache-2.0
"""CUDA forward compatibility: newer driver libraries of the image take precedence over the host's.

The image is read only if it has the directory. None of its files is loaded: an ELF note of its
libcuda lists the driver branches that it supports. If the host's is among them, all libraries that
ldconfig would list of the directory come first, since libraries of two drivers do not work in one
process.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson
from gpuhook.loader import elf, image_libraries
from gpuhook.loader.library_directory import is_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.apply.rootfs.root_directory import Root

NOTE_SECTION = b".note.cuda.fwd_compatibility"
NOTE_OWNER = b"NVIDIA Corporation"
_MAX_DIGITS = 19  # an image's note may have thousands
_TEGRA = 1  # the major "version" of libcuda.so.1.1


def libraries(
    root: Root, directory: str, names: list[str], driver: str, cuda: str = ""
) -> tuple[list[tuple[str, str]], str]:
    """Return ([(name, path), ...], reason) of the compatibility libraries that fit `driver`.

    `names` are the names in `directory`. The list is empty if nothing fits; the reason is "" unless
    the user needs to know it. With a note a library fits if it lists the host's driver branch and
    is newer than the host's; without one, if its major version is above the host's. Tegra's
    libcuda.so.1.1 has no driver version: for it, or if the host's is unknown, the CUDA version of
    the note has to be above `cuda`, the host's.
    """
    libraries = [name for name in names if is_library(name)]
    if len(libraries) > image_libraries.MAX_LIBRARIES:
        most = image_libraries.MAX_LIBRARIES
        return [], f"{directory} holds more than {most} libraries"
    found = [one for one in libraries if one.startswith("libcuda.so.") and one.count(".") > 2]
    if len(found) != 1:
        return [], f"{directory} holds {len(found)} versions of libcuda" if found else ""
    path = f"{directory}/{found[0]}"
    try:
        library = root.open_file(path)
        if library is None:
            return [], ""
        try:
            note = elf.note(library, NOTE_SECTION, NOTE_OWNER)
        finally:
            os.close(library)
    except (GpuhookError, OSError) as error:
        return [], f"{path}: {error}"
    if not _fits(note, found[0][len("libcuda.so.") :], driver, cuda):
        return [], ""
    return image_libraries.entries(root, directory, libraries), ""


def _fits(note: bytes | None, version: str, driver: str, cuda: str) -> bool:
    facts = _facts(note)
    if not driver or _numbers(version)[0] == _TEGRA:
        own = str(facts.get("cuda version", "")) if facts else ""
        return bool(own and cuda) and _numbers(own) > _numbers(cuda)
    if note is None:
        return _numbers(version)[0] > _numbers(driver)[0]
    branches = facts.get("driver")
    if not isinstance(branches, list):
        return False
    works_on = {str(branch) for branch in branches}
    return str(_numbers(driver)[0]) in works_on and _numbers(version) > _numbers(driver)


def _facts(note: bytes | None) -> dict[str, Any]:
    """Return the object in the note, its keys in lower case; {} for none and for other JSON."""
    try:
        facts = fastjson.loads(note.rstrip(b"\0")) if note else {}
    except ValueError:
        return {}
    return {key.lower(): value for key, value in facts.items()} if isinstance(facts, dict) else {}


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version; a part that is not a number is 0."""
    parts = version.split(".")
    return [int(p) if p.isascii() and p.isdigit() and len(p) < _MAX_DIGITS else 0 for p in parts]
