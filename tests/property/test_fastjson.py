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

from gpuhook import fastjson

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
    "number", ["1.0", "1e5", "1E+05", "-0.0", "123456789012345678901234567890"]
)
def test_numbers_keep_their_text(number: str) -> None:
    """Read exactly, a number is written as it was."""
    document = f'{{"a":[{number},"x"]}}'.encode()
    assert fastjson.dumps(fastjson.loads(document, exact=True)) == document


def test_lone_surrogates_survive() -> None:
    """An escaped lone surrogate is still the same one after a round trip."""
    document = rb'{"a":"\ud800 \udcff"}'
    assert fastjson.loads(fastjson.dumps(fastjson.loads(document))) == fastjson.loads(document)


def test_order_and_duplicate_keys() -> None:
    """Keys keep their order; of duplicates the last counts, as everywhere."""
    assert list(fastjson.loads(b'{"b":1,"a":2,"b":3}').items()) == [("b", 3), ("a", 2)]


def test_nesting_bomb_is_a_value_error() -> None:
    """A document nested far too deeply is refused in words."""
    with pytest.raises(ValueError, match="deep"):
        fastjson.loads(b"[" * 200_000)


def test_works_without_the_accelerator() -> None:
    """Where _json is not there, the standard library does the same work."""
    code = (
        "import sys; sys.modules['_json'] = None\n"
        "from gpuhook import fastjson as f\n"
        'd = rb\'{"a":[1.50,true,null,"\\u00e9\\n\\u0001"],"b":-2}\'\n'
        "assert f.make_scanner is None\n"
        "v = f.loads(d, exact=True); assert v['a'][0].text == '1.50'\n"
        "assert f.loads(f.dumps(v), exact=True) == v\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
