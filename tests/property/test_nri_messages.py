# SPDX-License-Identifier: Apache-2.0
"""The reader of NRI's messages, for any bytes: a result that protobuf's library confirms, or a
WireError.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.nri.wire.nri_messages import NriContainer
from gpuhook.nri.wire.protobuf_wire import Message
from gpuhook.nri.wire.ttrpc import MessageStream
from tests.nri import nri_api
from tests.nri.message_readers import readings

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
PAIRS = st.lists(st.fixed_dictionaries({"key": TEXT, "value": TEXT}), max_size=4)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
CONTAINERS = st.builds(
    lambda **fields: nri_api.new("Container", **fields),
    id=TEXT,
    name=TEXT,
    state=st.integers(-(2**31), 2**31 - 1),
    env=st.lists(TEXT, max_size=5),
    annotations=PAIRS,
    mounts=st.lists(
        st.fixed_dictionaries(
            {"destination": TEXT, "source": TEXT, "options": st.lists(TEXT, max_size=3)}
        ),
        max_size=3,
    ),
    linux=st.fixed_dictionaries(
        {
            "devices": st.lists(
                st.fixed_dictionaries({"path": TEXT, "major": NUMBERS, "minor": NUMBERS}),
                max_size=3,
            )
        }
    ),
)


@given(st.binary(max_size=200))
@example(b"\x5a\x04\x1a\x02\x3a\x00")
def test_any_bytes(data: bytes) -> None:
    assert len(readings(data)) == 6


@given(CONTAINERS)
def test_valid_containers(message: Any) -> None:
    """Numbers, texts and lists are those that protobuf's library has written."""
    found = NriContainer(Message(message.SerializeToString()))
    assert (found.identity, found.state) == (message.id, message.state)
    assert found.spec["process"]["env"] == list(message.env)
    assert found.spec["annotations"] == {pair.key: pair.value for pair in message.annotations}
    assert [
        (mount["destination"], mount["source"], mount.get("options", []))
        for mount in found.spec["mounts"]
    ] == [(one.destination, one.source, list(one.options)) for one in message.mounts]
    devices = [(one["path"], one["major"], one["minor"]) for one in found.spec["linux"]["devices"]]
    assert devices == [(one.path, one.major, one.minor) for one in message.linux.devices]


@given(CONTAINERS, st.data())
def test_damaged_containers(message: Any, data: st.DataObject) -> None:
    """Whatever bytes change, the reader is no stricter than protobuf's library."""
    raw = bytearray(message.SerializeToString() or b"\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        theirs = nri_api.parsed("Container", bytes(raw))
    except DecodeError:
        readings(bytes(raw))
        return
    if b"\x0b" not in raw and not any(byte & 7 in (3, 4) for byte in raw):  # groups are refused
        assert NriContainer(Message(bytes(raw))).identity == theirs.id


@given(st.lists(st.binary(max_size=60), max_size=6), st.data())
def test_messages_in_any_parts(datas: list[bytes], data: st.DataObject) -> None:
    """The messages of a connection are the same however its bytes arrive."""
    whole = b"".join(
        len(one).to_bytes(4, "big") + (2 * index + 1).to_bytes(4, "big") + b"\x01\x00" + one
        for index, one in enumerate(datas)
    )
    stream, found, at = MessageStream(), [], 0
    while at < len(whole):
        step = data.draw(st.integers(1, len(whole) - at))
        found += [bytes(one or b"") for _, _, one in stream.messages(whole[at : at + step])]
        at += step
    assert found == datas
