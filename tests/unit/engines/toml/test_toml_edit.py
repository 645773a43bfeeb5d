# SPDX-License-Identifier: Apache-2.0
"""Values of several lines are replaced, restored and removed as a whole."""

import pytest

from gpuhook.engines.configure.engine_plan import engine
from gpuhook.engines.read import toml_document
from gpuhook.engines.toml import toml_text
from gpuhook.engines.toml.toml_edit import Setting, apply_setting, edited, without_keys
from tests.unit.configuring import RUNTIME, wanted

CRI = "io.containerd.cri.v1.runtime"
ARRAYS = {
    "first element on the line": 'a = ["x",\n  "y"]\nb = 1\n',
    "comment after the bracket": 'a = [ # of ["x"\n  "x", # {\n\n  "y",\n]\nb = 1\n',
    "comment after the end": 'a = [\n  "x",\n  "y"\n] # end\nb = 1\n',
    "multi-line string": 'a = [\'\'\'x\'\'\', """\\\n  ] y\\""""]\nb = 1\n',
    "lines as keys and headers": 'a = [\n  "x", "b = 2",\n  ["c"]\n]\nb = 1\n',
    "inline table": 't = { a = [\n  "x"\n], c = 1 }\nb = 1\n',
    "CRLF": 'a = [\r\n  "x",\r\n\r\n  "y"\r\n]\r\nb = 1\r\n',
}


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("value", [["z"], [], 1], ids=str)
def test_multiline_value_is_replaced_and_restored(text: str, value: object) -> None:
    content = text.encode()
    setting = Setting(("t", "a") if text.startswith("t") else ("a",), value)
    expected = toml_document.parsed(content)
    apply_setting(expected, setting)
    after = edited("x", content, [setting])
    assert toml_document.parsed(after) == expected
    assert toml_text.without_marked_lines(after) == content
    assert edited("x", after, [setting]) == after


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
def test_an_element_is_appended_and_removed(text: str) -> None:
    content = text.encode()
    path = ("t", "a") if text.startswith("t") else ("a",)
    old = toml_document.table(toml_document.parsed(content), *path[:-1])["a"]
    after = edited("x", content, [Setting(path, [*old, "new"])])
    assert toml_document.table(toml_document.parsed(after), *path[:-1])["a"] == [*old, "new"]
    assert toml_text.without_marked_lines(after) == content


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
def test_multiline_key_is_removed(text: str) -> None:
    left = without_keys("x", text.encode(), [("t",) if text.startswith("t") else ("a",)])
    assert left.replace(b"\r", b"") == b"b = 1\n"


def test_a_removed_key_creates_no_parents() -> None:
    document: dict[str, object] = {}
    apply_setting(document, Setting(("a", "b", "c"), None))
    assert document == {}
    assert edited("x", b"x = 1\n", [Setting(("a", "b", "c"), None)]) == b"x = 1\n"


@pytest.mark.parametrize("has_parents", [False, True])
def test_undo_removes_a_containerd_handler_without_marks(has_parents: bool) -> None:
    """A program that writes the file again removes the comments, and may write every header."""
    names = ("plugins", CRI, "containerd", "runtimes", "nvidia")
    headers = [names[:depth] for depth in range(1, 5)] if has_parents else []
    lines = ["version = 3", *(f"[{toml_text.dotted(one)}]" for one in headers)]
    table = {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": RUNTIME}}
    lines += toml_text.table_lines(names, table)
    content = ("\n".join(lines) + "\n").encode()
    path = "/etc/containerd/config.toml"
    left = engine("containerd").without(path, content, wanted(), b"version = 3\n")
    assert left == b"version = 3\n"
