# SPDX-License-Identifier: Apache-2.0
"""Each program that writes files is killed at each system call that changes one.

The files are then the old or the new ones, whole. The same command, run again, completes the work:
the files are those of a run that no one killed, and no temporary file is left. Between two changes
the files are the same, so a kill at any other call leaves what a kill at the next change leaves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.depth import cases, depth
from tests.figures import Figures
from tests.system_calls import file_tree
from tests.system_calls.state_writers import STATE_WRITERS
from tests.system_calls.writers import WRITERS

ALL = {**WRITERS, **STATE_WRITERS}


@pytest.mark.soak
@pytest.mark.parametrize("name", cases(ALL, ["create"]))
def test_killed_writer(name: str, apart: Installation, tmp_path: Path, figures: Figures) -> None:
    """Old or new files after the kill; a second run completes them."""
    place = tmp_path / "writer"
    place.mkdir()
    writer = ALL[name](apart, place)
    writer.save()
    old = writer.tree()
    new = writer.whole_run()
    again = writer.whole_run()
    varying = {path for path in {*new, *again} if new.get(path) != again.get(path)}
    # A record also has what a run is about to do, and what an earlier one made. A map has the
    # containers of other tests.
    varying |= {path for path in {*old, *new} if path.endswith(("/record.json", "/map.svg"))}
    changes = writer.changes(tmp_path)
    chosen = changes[:: depth(max(1, len(changes)), 5, 1)]
    kills, findings = 0, []
    for point in chosen:
        if not writer.killed(point):
            continue
        kills += 1
        tree = writer.tree()
        wrong = file_tree.torn(tree, old, new, varying)
        wrong += [f"read by others: {path}" for path in file_tree.globbed_leftovers(tree)]
        done = writer.run()
        after = writer.tree()
        if done.rc != 0:
            wrong.append(f"the second run failed: {done}")
        else:
            wrong += [f"left: {path}" for path in file_tree.leftovers(after)]
            wrong += file_tree.incomplete(after, new, varying)
        findings += [f"{point}: {one}" for one in wrong]
    assert kills > 0
    figures.record(f"kills at changes of files: {name}", f"{kills} kills at {len(changes)} calls")
    assert not findings, "\n".join(findings)
