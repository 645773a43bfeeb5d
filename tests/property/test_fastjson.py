# SPDX-License-Identifier: Apache-2.0
"""fastjson agrees with the standard library, and keeps what json would lose."""

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
def test_fastjson_reads_documents_of_json(value: object) -> None:
    assert fastjson.loads(json.dumps(value).encode()) == value


@given(VALUES)
def test_json_reads_documents_of_fastjson(value: object) -> None:
    assert json.loads(fastjson.dumps(value)) == value


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u\n', max_size=12))
def test_same_texts_are_accepted_as_by_json(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            fastjson.loads(text.encode())
    else:
        assert fastjson.loads(text.encode()) == expected


@given(st.binary(max_size=20))
def test_bytes_that_are_not_utf8_are_kept(junk: bytes) -> None:
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
def test_exact_numbers_keep_their_text(number: str) -> None:
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
def test_lone_surrogates_are_kept(document: bytes) -> None:
    """An escape remains an escape, and a byte that is not UTF-8 remains that byte."""
    assert fastjson.dumps(fastjson.loads(document, exact=True), document) == document


@given(st.lists(st.sampled_from([rb"\ud800", rb"\udcff", rb"\udc00", b"\xff", b"x", b"\xc3\xa9"])))
def test_any_surrogates_are_kept(parts: list[bytes]) -> None:
    """An escaped low surrogate changes if it can be a byte of a document that is not UTF-8."""
    body = b"".join(parts).replace(rb"\ud800\udc", rb"\ud800 \udc")
    document = b'{"a":"' + body + b'"}'
    written = fastjson.dumps(fastjson.loads(document, exact=True), document)
    if b"\xff" in body:
        document = document.replace(rb"\udcff", b"\xff")
    assert written == document


def test_keys_keep_their_order_and_repeated_keys_are_reported() -> None:
    """The last value of a repeated key applies."""
    repeated: list[str] = []
    document = b'{"b":1,"a":{"x":1,"y":2,"\\u0078":3},"b":3}'
    found = fastjson.loads(document, repeated=repeated)
    assert list(found.items()) == [("b", 3), ("a", {"x": 3, "y": 2})]
    assert repeated == ["x", "b"]
    assert fastjson.loads(document) == found
    repeated.clear()
    assert fastjson.loads(b'[{"b":1},{"b":1.5}]', repeated=repeated) == [{"b": 1}, {"b": 1.5}]
    assert repeated == []


def test_deep_nesting_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="deep"):
        fastjson.loads(b"[" * 200_000)


def test_documents_are_read_without_the_c_accelerator() -> None:
    """The standard library replaces _json."""
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


def test_number_with_too_many_digits_is_refused() -> None:
    """Python's message explains how to change the interpreter."""
    with pytest.raises(ValueError, match=r"^a number has too many digits$"):
        fastjson.loads(b"[" + b"9" * 5000 + b"]")
