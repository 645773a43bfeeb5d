# SPDX-License-Identifier: Apache-2.0
"""The byte code of an installed library: other files are kept."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "packaging/packages/byte_code.py"


def script(at: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module that is in the directory `at`."""
    found = importlib.util.spec_from_file_location("byte_code_of_a_test", SCRIPT)
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    monkeypatch.setattr(made, "HERE", str(at))
    return made


@pytest.mark.parametrize("parent", ["gpuhook", "packaging"])
def test_removed_releases_are_cleaned_up_only_next_to_a_package(
    parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout, the directories next to it are other things."""
    for name, file in (("1.0", "__pycache__/a.pyc"), ("2.0", "a.py"), ("3.0", "a.py")):
        place = tmp_path / parent / name / file
        place.parent.mkdir(parents=True)
        place.write_text("")
    script(tmp_path / parent / "3.0", monkeypatch).remove_ended()
    left = sorted(one.name for one in (tmp_path / parent).iterdir())
    assert left == (["2.0", "3.0"] if parent == "gpuhook" else ["1.0", "2.0", "3.0"])
