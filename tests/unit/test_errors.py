# SPDX-License-Identifier: Apache-2.0
"""The table of faults and every place that raises one."""

from __future__ import annotations

import ast
import importlib
import re
import string
from pathlib import Path

import pytest

from gpuhook import errors, fault_texts
from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.fault_texts import requests

PACKAGE = Path(errors.__file__).parent
CODE = re.compile(r"GH\d{4}")
FILES = {block: PACKAGE / f"fault_texts/{name}.py" for block, name in fault_texts.BLOCKS.items()}
TEXTS = {
    code: text
    for name in fault_texts.BLOCKS.values()
    for code, text in importlib.import_module(f"gpuhook.fault_texts.{name}").TEXTS.items()
}


# What launchers, which are no Python, say by themselves: the text by its code.
LAUNCHERS = {
    code: said
    for path in PACKAGE.with_name("packaging").glob("*.sh")
    for code, said in re.findall(r"error (GH\d{4}): (.*?)\"", path.read_text(encoding="utf-8"))
}


def _calls() -> list[tuple[str, str, set[str], bool]]:
    """Return every fault(...) of the package: place, code, names of its facts, open-ended."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and _name(node.func) == "fault"):
                continue
            place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
            assert node.args, place
            for code in _codes(node.args[0], place):
                facts = {k.arg for k in node.keywords if k.arg}
                found.append((place, code, facts, any(k.arg is None for k in node.keywords)))
    return found


def _codes(node: ast.expr, place: str) -> list[str]:
    """Return the codes that the first argument of fault() may be: a literal, or one of two."""
    if isinstance(node, ast.IfExp):
        return _codes(node.body, place) + _codes(node.orelse, place)
    assert isinstance(node, ast.Constant), f"{place}: the code of a fault is a literal"
    return [str(node.value)]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _placeholders(code: str) -> set[str]:
    _, message, hint = TEXTS[code]
    parts = [*string.Formatter().parse(message), *string.Formatter().parse(hint)]
    return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in parts if name}


def test_every_fault_is_in_the_table() -> None:
    """Each code that the package raises has its texts."""
    assert [(place, code) for place, code, _, _ in _calls() if code not in TEXTS] == []


def test_every_fault_is_given_its_facts() -> None:
    """Each raise supplies exactly the facts that its texts name."""
    wrong = [
        (place, code, sorted(facts ^ _placeholders(code)))
        for place, code, facts, more in _calls()
        if code in TEXTS and not more and facts != _placeholders(code)
    ]
    assert wrong == []


def test_every_code_is_used() -> None:
    """The table has no text that nothing raises, or says without Python."""
    assert sorted(set(TEXTS) - {code for _, code, _, _ in _calls()} - set(LAUNCHERS)) == []


def test_launchers_say_what_the_table_has() -> None:
    """What a shell script says is word for word what is explained."""
    assert set(LAUNCHERS) <= set(TEXTS)
    facts = {"python": "@PYTHON@", "library": "@LIB@", "config": "$bundle/config.json"}
    facts["reason"] = "$found"
    for code, said in LAUNCHERS.items():
        _, message, hint = TEXTS[code]
        assert f"{message.format_map(facts)}: {hint}" == said


@pytest.mark.parametrize("block", FILES)
def test_codes_are_unique_and_sorted(block: str) -> None:
    """Each code has its form, stands once in the file of its block, and they are in order."""
    tree = ast.parse(FILES[block].read_text(encoding="utf-8"))
    tables = [n for n in ast.walk(tree) if isinstance(n, ast.Dict)]
    literals = [k.value for t in tables for k in t.keys if isinstance(k, ast.Constant)]
    codes = [str(value) for value in literals]
    assert codes == sorted(set(codes))
    assert all(CODE.fullmatch(code) and code.startswith(block) for code in codes)
    assert set(codes) == {code for code in TEXTS if code.startswith(block)}


def test_a_text_is_found_by_its_code() -> None:
    """Those of all blocks, and none for a code that nobody has."""
    assert all(fault_texts.text_of(code) == text for code, text in TEXTS.items())
    assert not fault_texts.is_known("GH1099")
    assert not fault_texts.is_known("GH9999")


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_texts_read_alike(code: str) -> None:
    """A message is one line without a dot at its end, and a hint says something."""
    kind, message, hint = TEXTS[code]
    assert issubclass(kind, GpuhookError)
    assert message == message.strip()
    assert not message.endswith(".")
    assert "\n" not in message + hint
    assert hint


def test_facts_are_shown_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters of a fact are escaped, long ones cut, and the exception keeps the code."""
    monkeypatch.setitem(requests.TEXTS, "GH1099", (GpuhookError, "no {name}", "see {name}"))
    raised = fault("GH1099", name="a\nb\x1b[31m")
    assert (raised.code, str(raised)) == ("GH1099", "no a\\nb\\x1b[31m")
    assert raised.hint == "see a\\nb\\x1b[31m"
    assert printable("x" * 1000) == "x" * 400 + "..."
    assert printable("é\u202e") == "é\\u202e"
