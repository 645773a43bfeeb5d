# SPDX-License-Identifier: Apache-2.0
"""fastjson agrees with the standard library, and loses nothing that json would lose."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.host.hot import fastjson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES)
def test_reads_what_json_writes(value: object) -> None:
    """Every document that json writes is read as the same value."""
    assert fastjson.loads(json.dumps(value).encode()) == value


@given(VALUES)
def test_json_reads_what_it_writes(value: object) -> None:
    """Every document that fastjson writes is read by json as the same value."""
    assert json.loads(fastjson.dumps(value)) == value


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u\n', max_size=12))
def test_accepts_and_rejects_as_json_does(text: str) -> None:
    """A short text is a document for both or for neither."""
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            fastjson.loads(text.encode())
    else:
        assert fastjson.loads(text.encode()) == expected


@given(st.binary(max_size=20))
def test_bytes_that_are_no_utf8_survive(junk: bytes) -> None:
    """A string with any bytes in it comes out with the same bytes."""
    body = junk.replace(b"\\", b"").replace(b'"', b"")
    body = bytes(byte for byte in body if byte >= 0x20)
    document = b'{"key":"' + body + b'"}'
    assert fastjson.dumps(fastjson.loads(document, exact=True)) == document


@pytest.mark.parametrize(
    "number",
    [
        "1.0",
        "1e5",
        "1E+05",
        "-0.0",
        "-0",
        "123456789012345678901234567890",
        "9" * 5000,
        "-" + "9" * 5000,
    ],
)
def test_numbers_keep_their_text(number: str) -> None:
    """Read exactly, a number is written as it was."""
    document = f'{{"a":[{number},"x"]}}'.encode()
    assert fastjson.dumps(fastjson.loads(document, exact=True)) == document


@pytest.mark.parametrize(
    "document",
    [
        rb'{"a":"\ud800 \udcff \udc00 \udfff"}',
        rb'{"\ud800":"\udc80"}',
        b'{"a":"\\ud800\xff"}',
        b'{"a":"\xff\\udc00\xff"}',
        b'{"a":"\xed\xa0\x80\\ud800"}',
    ],
)
def test_lone_surrogates_survive(document: bytes) -> None:
    """An escaped lone surrogate stays an escape, and a byte that is not UTF-8 that byte."""
    assert fastjson.dumps(fastjson.loads(document, exact=True), document) == document


@given(st.lists(st.sampled_from([rb"\ud800", rb"\udcff", rb"\udc00", b"\xff", b"x", b"\xc3\xa9"])))
def test_any_surrogates_survive(parts: list[bytes]) -> None:
    """They do unless the escape of a low one could be a byte of a document that is not UTF-8."""
    body = b"".join(parts).replace(rb"\ud800\udc", rb"\ud800 \udc")
    document = b'{"a":"' + body + b'"}'
    written = fastjson.dumps(fastjson.loads(document, exact=True), document)
    if b"\xff" in body:
        document = document.replace(rb"\udcff", b"\xff")
    assert written == document


def test_order_and_repeated_keys() -> None:
    """Keys keep their order; of a key that occurs twice the last value is taken, and noted."""
    repeated: list[str] = []
    document = b'{"b":1,"a":{"x":1,"y":2,"\\u0078":3},"b":3}'
    found = fastjson.loads(document, repeated=repeated)
    assert list(found.items()) == [("b", 3), ("a", {"x": 3, "y": 2})]
    assert repeated == ["x", "b"]
    assert fastjson.loads(document) == found
    repeated.clear()
    assert fastjson.loads(b'[{"b":1},{"b":1.5}]', repeated=repeated) == [{"b": 1}, {"b": 1.5}]
    assert repeated == []


def test_nesting_bomb_is_a_value_error() -> None:
    """A document nested far too deeply is refused in words."""
    with pytest.raises(ValueError, match="deep"):
        fastjson.loads(b"[" * 200_000)


def test_works_without_the_accelerator() -> None:
    """If _json is not there, the standard library does the same work."""
    code = (
        "import sys; sys.modules['_json'] = None\n"
        "from gpuhook.host.hot import fastjson as f\n"
        'd = rb\'{"a":[1.50,true,null,"\\u00e9\\n\\u0001"],"b":-2}\'\n'
        "assert f.make_scanner is None\n"
        "v = f.loads(d, exact=True); assert v['a'][0].text == '1.50'\n"
        "assert f.loads(f.dumps(v), exact=True) == v\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_a_number_of_many_digits_is_refused_in_plain_words() -> None:
    """Python's own words tell how to change the interpreter."""
    with pytest.raises(ValueError, match=r"^a number has too many digits$"):
        fastjson.loads(b"[" + b"9" * 5000 + b"]")
