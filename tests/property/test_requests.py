# SPDX-License-Identifier: Apache-2.0
"""Properties of any GPU request: no unexpected exception, and no source against the settings."""

from __future__ import annotations

import json
import sys
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from gpuhook.entry import runtime
from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import mount_requests, plan
from gpuhook.vendors.hot.prefilter import MARKS, has_unusual_escapes
from gpuhook.vendors.nvidia.hot import vocabulary
from tests.plans import source_of, this_node

BELOW = "/var/run/nvidia-container-devices/"
SWARM = "DOCKER_RESOURCE_GPU"
VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "CUDA_VERSION",
    SWARM, "PATH",
)  # fmt: skip
VALUES = st.sampled_from(
    ["", "all", "none", "void", "0", "0,1", "GPU-1", "a.b/c=0", "compute", " , ", "8.0", "video"]
) | st.text(max_size=12)
ENV = st.lists(st.tuples(st.sampled_from(VARIABLES), VALUES).map("=".join), max_size=6)
PATHS = st.sampled_from(["0", "GPU-1", "cdi/a.b/c/0", "cdi/x", "imex/0", ".."]) | st.text(
    max_size=9
)
MOUNT = st.fixed_dictionaries(
    {"source": st.sampled_from(["/dev/null", "/tmp"]), "destination": PATHS.map(BELOW.__add__)}
)
JSON = st.recursive(st.none() | st.integers() | st.text(max_size=4), st.lists, max_leaves=4)
MOUNTS = st.lists(MOUNT, max_size=4) | JSON
CAPABILITIES = st.lists(st.sampled_from(vocabulary.CAPABILITIES), unique=True)


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    made = Settings()
    made.accept_env_when_unprivileged = draw(st.booleans())
    made.accept_volume_mounts = draw(st.booleans())
    made.legacy_images = draw(st.booleans())
    made.driver_capabilities = draw(CAPABILITIES)
    made.swarm_resources = draw(st.sampled_from([[], [SWARM]]))
    return made


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    process = {"env": draw(ENV), "capabilities": {"bounding": draw(st.sampled_from([[], None]))}}
    return {"process": process, "mounts": draw(MOUNTS)}


@given(spec=specs(), chosen=settings())
def test_source_is_allowed_by_the_settings(spec: dict[str, Any], chosen: Settings) -> None:
    """The container is unprivileged."""
    try:
        source = source_of(spec, chosen, this_node(chosen))
    except GpuhookError as error:
        event(error.code)
        return
    if source is None:
        return
    if source.kind == "mounts":
        assert chosen.accept_volume_mounts
    else:
        assert chosen.accept_env_when_unprivileged
    assert source.names
    assert "void" not in source.names
    assert source.kind != "image" or chosen.legacy_images


@given(spec=specs(), chosen=settings())
def test_driver_capabilities_are_allowed_by_the_settings(
    spec: dict[str, Any], chosen: Settings
) -> None:
    try:
        capabilities = plan.capabilities(spec, chosen, this_node(chosen))
    except GpuhookError as error:
        event(error.code)
        return
    assert capabilities <= frozenset(chosen.driver_capabilities or vocabulary.CAPABILITIES)


@given(env=ENV, chosen=settings())
def test_every_request_has_a_mark(env: list[str], chosen: Settings) -> None:
    """The wrapper parses a config.json only if it contains a mark."""
    try:
        requests_gpu = (
            plan.verdict({"process": {"env": env}}, chosen, this_node(chosen)).chosen is not None
        )
    except GpuhookError:
        requests_gpu = True
    raw = ",".join(f'"{entry}"' for entry in env).encode("utf-8", "surrogateescape")
    assert runtime.may_ask(raw, runtime.own_marks(chosen)) or not requests_gpu


@given(mounts=MOUNTS, prefix=st.sampled_from([BELOW, BELOW.rstrip("/")]))
def test_mount_is_a_name_or_malformed(mounts: Any, prefix: str) -> None:
    names, malformed = mount_requests.names(mounts, prefix, ("imex",))
    assert all(names)
    assert all(path.startswith(BELOW + "cdi") for path in malformed)


@given(text=st.text(alphabet='NVIDIA&<>\\/"\n\x01u0041é', max_size=12))
def test_usual_escapes_hide_nothing(text: str) -> None:
    """A document of the engines' encoder is not parsed for its escapes."""
    raw = json.dumps(text, ensure_ascii=False)
    for letter in "&<>":
        raw = raw.replace(letter, f"\\u{ord(letter):04x}")
    assert not has_unusual_escapes(raw.encode())


def test_many_usual_escapes_take_no_more_steps() -> None:
    """A tenant's arguments of a million & delay no start."""

    def steps(raw: bytes) -> int:
        count, before = 0, sys.gettrace()

        def traced(*_: object) -> Any:
            nonlocal count
            count += 1
            return traced

        sys.settrace(traced)
        try:
            assert not has_unusual_escapes(raw)
        finally:
            sys.settrace(before)
        return count

    assert steps(b"\\u0026" * 1000) == steps(b"\\u0026") > 0


@given(word=st.sampled_from(MARKS), data=st.data())
def test_escaped_word_is_found(word: bytes, data: st.DataObject) -> None:
    """A character of a word in an escape, however it is written, does not hide the request."""
    text = word.decode().strip('"')
    at = data.draw(st.integers(0, len(text) - 1))
    form = data.draw(st.sampled_from(["\\u{:04x}", "\\u{:04X}"]))
    escaped = "\\/" if text[at] == "/" and data.draw(st.booleans()) else form.format(ord(text[at]))
    raw = f'{{"\\\\{text[:at]}{escaped}{text[at + 1 :]}": 1}}'
    assert text in json.loads(raw).popitem()[0]
    assert runtime.may_ask(raw.encode(), [])
