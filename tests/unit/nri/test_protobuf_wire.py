# SPDX-License-Identifier: Apache-2.0
"""The wire format of protobuf, compared with protobuf's own library."""

from __future__ import annotations

import pytest

from gpuhook.nri.wire import protobuf_wire as wire
from gpuhook.nri.wire.protobuf_wire import Message, WireError
from tests.nri import nri_api

MIB4 = 4 << 20


@pytest.mark.parametrize(
    "number", [1, 127, 128, 300, 2**31 - 1, 2**32, 2**63 - 1, -1, -2, -(2**31), -(2**63)]
)
def test_numbers(number: int) -> None:
    """Negative numbers are ten bytes of two's complement."""
    data = nri_api.new("Int", value=number).SerializeToString()
    assert wire.encode_integer(1, number) == data
    assert Message(data).integer(1) == number


def test_absent_is_not_zero() -> None:
    """An `Optional*` message of 0 is not an absent one."""
    hook = nri_api.new("Hook", path="/hook", timeout={"value": 0})
    assert Message(hook.SerializeToString()).wrapped_integer(4) == 0
    assert Message(nri_api.new("Hook", path="/hook").SerializeToString()).wrapped_integer(4) is None
    assert wire.encode_wrapped(4, 0) == b"\x22\x00"
    assert wire.encode_wrapped(4, None) == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("0a", "cut off"),
        ("0a05", "cut off"),
        ("0a0568656c6c", "cut off"),
        ("08", "cut off"),
        ("08ffffffffffffffffffff01", "too long"),
        ("0d0102", "cut off"),
        ("090102030405", "cut off"),
        ("0b", "wire type 3"),
        ("0f", "wire type 7"),
        ("00", "field number 0"),
        ("ffffffffffffffffffff7f", "too long"),
        ("0affffffffffffffff7f", "cut off"),
    ],
)
def test_malformed(data: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        Message(bytes.fromhex(data))


def test_unknown_fields_are_skipped() -> None:
    """Fields of each wire type that a newer runtime may add change nothing."""
    known = nri_api.new("Mount", destination="/a", source="/b", options=["ro"]).SerializeToString()
    more = bytes.fromhex("a00601a1060102030405060708a2060161a50601020304")
    for data in (known + more, more + known):
        message = Message(data)
        assert (message.text(1), message.text(3), message.texts(4)) == ("/a", "/b", ["ro"])


def test_last_one_wins() -> None:
    """Of a repeated single field the last value applies, of a message all parts."""
    parts = [nri_api.new("Container", id=one) for one in ("first", "last")]
    assert Message(b"".join(part.SerializeToString() for part in parts)).text(1) == "last"
    pair = [nri_api.new("Container", linux={"oom_score_adj": {"value": 5}}).SerializeToString()]
    pair.append(nri_api.new("Container", linux={"devices": [{"path": "/d"}]}).SerializeToString())
    linux = Message(b"".join(pair)).message(11)
    assert linux.wrapped_integer(4) == 5
    assert [one.text(1) for one in linux.messages(2)] == ["/d"]


def test_another_kind_of_field_is_absent() -> None:
    """A number in place of a text, or the other way round, is ignored."""
    message = Message(wire.encode_integer(1, 7) + wire.encode_text(2, "text"))
    assert (message.text(1), message.integer(2), message.optional_integer(2)) == ("", 0, None)


def test_hostile_text() -> None:
    """Bytes that are not UTF-8 are read, and refused when they would be sent."""
    text = Message(wire.encode_bytes(8, b"A=\xff\xc3(\x00")).text(8)
    assert text.encode("utf-8", "surrogateescape") == b"A=\xff\xc3(\x00"
    with pytest.raises(UnicodeEncodeError):
        wire.encode_text(1, text)


def test_maps() -> None:
    """A map is its entries; a repeated key has its last value, a missing one is empty."""
    pod = nri_api.new("PodSandbox", annotations=nri_api.pairs({"a": "1", "": "", "b": "2"}))
    data = pod.SerializeToString() + wire.encode_bytes(6, wire.encode_text(1, "a"))
    assert Message(data).mapping(6) == {"a": "", "": "", "b": "2"}


def test_large_map() -> None:
    """A map of 4 MiB is read in full."""
    entries = {f"key-{index}": "x" * 40 for index in range(MIB4 // 64)}
    pod = nri_api.new("PodSandbox", annotations=nri_api.pairs(entries)).SerializeToString()
    assert Message(pod).mapping(6) == entries


def test_fields_that_no_one_asks_for_are_not_parsed() -> None:
    """A broken message inside is found only by the reader of that message."""
    message = Message(wire.encode_text(1, "id") + wire.encode_bytes(9, b"\x0a\xff"))
    assert message.text(1) == "id"
    with pytest.raises(WireError):
        list(message.messages(9))
