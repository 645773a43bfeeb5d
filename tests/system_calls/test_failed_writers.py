# SPDX-License-Identifier: Apache-2.0
"""Each program that writes files, with ENOSPC, EIO or EROFS at a system call that changes one.

The files are the old or the new ones, whole; a program that fails reports a code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.depth import cases, depth
from tests.system_calls import call_points, file_tree
from tests.system_calls.test_full_disk import state_files, trouble
from tests.system_calls.writers import WRITERS

ERRORS = ("ENOSPC", "EIO", "EROFS")
LOST = ("no code", "write")


@pytest.mark.soak
@pytest.mark.parametrize("name", cases(WRITERS, ["config import"]))
def test_writer_with_an_error(name: str, apart: Installation, tmp_path: Path) -> None:
    """A sample of the calls, each error in turn."""
    place = tmp_path / "writer"
    place.mkdir()
    writer = WRITERS[name](apart, place)
    writer.save()
    old, new, again = writer.tree(), writer.whole_run(), writer.whole_run()
    varying = {path for path in {*new, *again} if new.get(path) != again.get(path)}
    changes = writer.changes(tmp_path)
    chosen = [one for one in call_points.errors(changes) if one[1] in ERRORS]
    assert chosen
    findings = []
    for point, error in chosen[:: max(1, len(chosen) // depth(3, 12, len(chosen)))]:
        writer.reset()
        words = list(map(str, writer.command))
        done = call_points.run_with(f"error={error}", point, words, writer.env, writer.stdin)
        tree = writer.tree()
        wrong = file_tree.torn(tree, old, new, varying | state_files(tree))
        # The error is that of the same write in each process, and may lose the line with the code.
        wrong += [one for one in trouble(name, done, tree) if (one, point.call) != LOST]
        findings += [f"{error} at {point}: {one}: {done}" for one in wrong]
    assert not findings, "\n".join(findings)
