# SPDX-License-Identifier: Apache-2.0
"""The process in the sandbox: it reads names of cases, and answers with transcripts as JSON."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from tests.record import cases, commands, scenes, surface
from tests.record.box import PLACE, Box
from tests.record.case import Case

_CLONE_NEWNS = 0x20000
_SECONDS = 100
_EMPTY = ("/run", "/sys", "/mnt/tmp", "/mnt/host")
FAILED = "the case failed"  # begins a transcript of a case that raised
_RESULT = Path("/mnt/result")


def main() -> None:
    """Answer until there are no more cases."""
    surface.load()
    gc.freeze()  # a case that collects garbage would copy all of the modules' memory
    known = {case.path: case for case in cases.every()}
    kept = scenes.Kept()
    for line in sys.stdin:
        case = known[line.strip()]
        print(json.dumps(_transcript(case, kept)), flush=True)


def _transcript(case: Case, kept: scenes.Kept) -> str:
    kept.place(case.scene)
    _RESULT.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _become(case)
    os.waitpid(child, 0)
    shutil.rmtree(PLACE, ignore_errors=True)
    for directory in _EMPTY:
        _clear(directory)
    kept.check(case.scene)
    if case.is_altering:
        kept.forget(case.scene)
    if commands.USED.exists():
        surface.load(commands.USED.read_text("utf-8").split())
        commands.USED.unlink()
    return _RESULT.read_text("utf-8") if _RESULT.exists() else f"{case.path} did not end\n"


def _clear(directory: str) -> None:
    """Remove the contents of a directory."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _become(case: Case) -> None:
    """Run the case in a new mount namespace, and end."""
    signal.alarm(_SECONDS)
    try:
        failed = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS)
        assert not failed, os.strerror(ctypes.get_errno())
        box = Box(case.scene)
        case.action(box)
        text = box.transcript()
    except BaseException:  # the caller must see the error
        text = f"{FAILED}\n{traceback.format_exc()}"
    _RESULT.write_text(text, encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main()
