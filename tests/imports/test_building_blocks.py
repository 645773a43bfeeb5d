# SPDX-License-Identifier: Apache-2.0
"""What host/ and kernel/ implement once, no other module of the package implements again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpuhook"
PATHS = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))]

# By name of a call: the modules that may have it.
CALLS = {
    "fcntl.flock": {"host/hot/file_lock.py"},
    "os.fork": {
        "apply/live/ldconfig.py",  # the child becomes another program
        "host/hot/timely_read.py",  # of the wrapper
        "host/warm/child_process.py",
        "host/worker.py",
        "kernel/namespaces.py",  # a child without a deadline, which dies with its parent
    },
    "pickle.dumps": {"host/worker.py"},
    "pickle.loads": {"host/worker.py"},
    "yaml.parse": {"host/bounded_yaml.py"},
    "yaml.safe_load": set(),
    "yaml.safe_load_all": set(),
}
# By text in the source: the modules that may have it.
TEXTS = {
    'rpartition(b")")': {"host/hot/procfs.py"},
    'listdir("/proc")': set(),
    "range(40)": set(),
    "LINKS = 40": {"host/hot/files.py"},
    "st_size}-{found.st_mtime_ns}": {
        "host/hot/files.py",
        "vendors/nvidia/hot/host_fingerprint.py",  # fingerprints in CDI specs have another order
    },
}


def test_the_modules_of_the_lists_exist() -> None:
    """A module that is renamed is renamed here as well."""
    listed = set().union(*CALLS.values(), *TEXTS.values())
    assert listed - set(PATHS) == set()


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_made_in_one_place(call: str) -> None:
    """Only the modules of the list call the function."""
    assert {path for path in PATHS if call in _calls(path)} <= CALLS[call]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_in_one_place(text: str) -> None:
    """Only the modules of the list have the text."""
    found = {path for path in PATHS if text in (PACKAGE / path).read_text(encoding="utf-8")}
    assert found <= TEXTS[text]


def _calls(path: str) -> set[str]:
    """Return the names of the functions that a module calls, as it writes them."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
