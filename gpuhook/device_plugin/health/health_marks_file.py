# SPDX-License-Identifier: Apache-2.0
"""The marks of unhealthy GPUs below the state directory, and what operators ask of them.

health/marks.json is the plugin's alone to write: a GPU that needs a reset stays marked when the
plugin is started anew. An operator's `gpuhook health clear` leaves a file in health/clear, named by
the GPU, which the plugin takes away when it has done it: nobody else writes the marks, so nothing
is lost between two writers.
"""

from __future__ import annotations

import json
import os
import re

from gpuhook.device_plugin.health import health_marks
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.device_plugin.health.health_marks import HealthMark

FORMAT = 1
_MAX_SIZE = 1 << 20
_NAME = re.compile(r"all|GPU-[0-9A-Za-z-]{1,64}")


def directory() -> str:
    """Return where the files are."""
    return os.path.join(state.directory(), "health")


def path() -> str:
    """Return the path of the marks."""
    return os.path.join(directory(), "marks.json")


def read() -> tuple[HealthMark, ...]:
    """Return the marks that the plugin wrote last, () where there is no file that can be believed.

    Whether they still hold is for HealthBook.evidence() to say.
    """
    try:
        return stored_marks()
    except GpuhookError:
        return ()


def stored_marks() -> tuple[HealthMark, ...]:
    """Return the marks that the plugin wrote last, () where it has written none.

    Raises GH1865 for a file that cannot be read or believed.
    """
    try:
        found = _content()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise fault("GH1865", path=path(), reason=error.strerror or error) from error
    except ValueError as error:
        raise fault("GH1865", path=path(), reason="it is not as the plugin writes it") from error
    marks = found.get("marks")
    made = map(health_marks.from_document, marks if isinstance(marks, list) else [])
    return tuple(mark for mark in made if mark is not None)


def _content() -> dict[str, Any]:
    """Return the document in the file; ValueError for what is none."""
    if not state.usable(os.lstat(path())):
        raise fault("GH1865", path=path(), reason="others than root can write it")
    found = documents.parse_json_object(files.read(path(), _MAX_SIZE))
    if found.get("format") != FORMAT:
        raise ValueError(path())
    return found


def write(marks: Iterable[HealthMark]) -> None:
    """Write the marks that outlive the plugin: not those that are seen anew or not at all."""
    kept = [health_marks.document(mark) for mark in marks if not mark.is_condition]
    os.makedirs(directory(), 0o755, exist_ok=True)
    text = json.dumps({"format": FORMAT, "marks": kept}, indent=2) + "\n"
    files.replace(path(), text.encode(), mode=0o644)


def ask_to_clear(gpu: str) -> None:
    """Ask the plugin to wipe the marks of a GPU (its UUID, or "all"). Raises GH1860, OSError."""
    if not _NAME.fullmatch(gpu):
        raise fault("GH1860", name=gpu)
    place = os.path.join(directory(), "clear")
    os.makedirs(place, 0o755, exist_ok=True)
    files.replace(os.path.join(place, gpu), b"", mode=0o644)


def clear_requests() -> dict[str, float]:
    """Return the GPUs whose marks are to be wiped, and since when, in seconds since 1970."""
    place = os.path.join(directory(), "clear")
    found = {}
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name) and state.usable(about):
                    found[entry.name] = about.st_mtime
    except OSError:
        return found
    return found


def done(gpu: str) -> None:
    """Take the request for a GPU away; one that is gone already is nothing to speak of."""
    try:
        os.unlink(os.path.join(directory(), "clear", gpu))
    except FileNotFoundError:
        return
