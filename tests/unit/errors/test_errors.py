# SPDX-License-Identifier: Apache-2.0
"""The table of errors, and each call that raises one."""

from __future__ import annotations

import ast
import pickle
import re
import string
from functools import cache
from pathlib import Path

import pytest

import gpuhook
from gpuhook.errors import GpuhookError, RequestError, fault, kinds, messages, printable, rebuild
from gpuhook.errors.catalogue import explanations

PACKAGE = Path(gpuhook.__file__).parent
TEXTS = {code: (one.message, one.hint) for code, one in explanations().items()}

# Messages of the launchers, which are shell scripts: the text by its code.
LAUNCHERS = {
    code: said
    for path in PACKAGE.with_name("packaging").glob("*.sh")
    for code, said in re.findall(r"error (GH\d{4}): (.*?)\"", path.read_text(encoding="utf-8"))
}


@cache
def _calls() -> list[tuple[str, str, set[str], bool]]:
    """Return every call of fault() in the package: place, code, names of its facts, open-ended."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "fault(" in text or "(fault" in text else ():
            if not isinstance(node, ast.Call):
                continue
            arguments = node.args
            if _name(node.func) == "partial" and arguments and _name(arguments[0]) == "fault":
                arguments = arguments[1:]
            elif _name(node.func) != "fault":
                continue
            place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"
            assert arguments, place
            for code in _codes(arguments[0], place):
                facts = {k.arg for k in node.keywords if k.arg}
                found.append((place, code, facts, any(k.arg is None for k in node.keywords)))
    return found


def _codes(node: ast.expr, place: str) -> list[str]:
    """Return the codes in the first argument of fault(): a literal, or one of two."""
    if isinstance(node, ast.IfExp):
        return _codes(node.body, place) + _codes(node.orelse, place)
    assert isinstance(node, ast.Constant), f"{place}: the code of a fault is a literal"
    return [str(node.value)]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _placeholders(code: str) -> set[str]:
    message, hint = TEXTS[code]
    parts = [*string.Formatter().parse(message), *string.Formatter().parse(hint)]
    return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in parts if name}


def test_every_call_has_a_code_of_the_catalogue() -> None:
    assert [f"{place}: {code}" for place, code, _, _ in _calls() if code not in TEXTS] == []


def test_arguments_match_the_placeholders() -> None:
    """Each call supplies the facts that its texts name, and no other."""
    wrong = [
        f"{place}: {code}: has {sorted(facts)}, the text {sorted(_placeholders(code))}"
        for place, code, facts, more in _calls()
        if code in TEXTS and not more and facts != _placeholders(code)
    ]
    assert wrong == []


def test_every_code_has_a_call() -> None:
    """The catalogue has no code that neither Python nor a launcher reports."""
    assert sorted(set(TEXTS) - {code for _, code, _, _ in _calls()} - set(LAUNCHERS)) == []


def test_messages_of_launchers_are_those_of_the_table() -> None:
    """A shell script prints the text of the catalogue."""
    assert set(LAUNCHERS) <= set(TEXTS)
    facts = {"python": "@PYTHON@", "library": "@LIB@", "config": "$bundle/config.json"}
    facts |= {"reason": "$found", "path": "$1", "status": "$status"}
    for code, said in LAUNCHERS.items():
        message, hint = TEXTS[code]
        assert f"{message.format_map(facts)}: {hint}" == said


def test_form_of_messages_and_hints() -> None:
    """A message is one line without a final dot, and a hint is not empty."""
    for code, (message, hint) in TEXTS.items():
        assert message == message.strip(), code
        assert not message.endswith("."), code
        assert "\n" not in message + hint, code
        assert hint, code


def test_errors_have_kind_message_and_hint_of_the_catalogue() -> None:
    """The placeholders are replaced by the facts."""
    for code, texts in TEXTS.items():
        facts = {name: f"{name}\t" for name in _placeholders(code)}
        raised = fault(code, **facts)
        assert type(raised) is getattr(kinds, explanations()[code].kind), code
        shown = {name: f"{name}\\t" for name in facts}
        assert (raised.message, raised.hint) == tuple(t.format_map(shown) for t in texts), code


def test_error_of_another_process_keeps_its_texts() -> None:
    """Its kind is that of its code."""
    made = rebuild("GH1003", "a {b}", "c")
    assert type(made) is RequestError
    assert (made.code, str(made), made.hint) == ("GH1003", "a {b}", "c")
    again = pickle.loads(pickle.dumps(made))
    assert (type(again), *again.__reduce__()) == (type(made), *made.__reduce__())
    with pytest.raises(KeyError):
        rebuild("GH1099", "a", "b")


def test_facts_are_printed_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters are escaped, long facts are cut, and the exception keeps the code."""
    texts = f"{messages.TEXTS}GH1099 GpuhookError\nno {{name}}\nsee {{name}}\n"
    monkeypatch.setattr(messages, "TEXTS", texts)
    raised = fault("GH1099", name="a\nb\x1b[31m")
    assert type(raised) is GpuhookError
    assert (raised.code, str(raised)) == ("GH1099", "no a\\nb\\x1b[31m")
    assert raised.hint == "see a\\nb\\x1b[31m"
    assert printable("x" * 1000) == "x" * 400 + "..."
    assert printable("é\u202e") == "é\\u202e"
