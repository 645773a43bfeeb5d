# SPDX-License-Identifier: Apache-2.0
"""No text makes the reader of the device plugin's configuration raise; what it prints, it reads."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.kubernetes.config import build as config_build
from gpuhook.kubernetes.config import keys as config_keys
from gpuhook.kubernetes.config import source as config_source
from gpuhook.kubernetes.config.given import given as options_given
from gpuhook.kubernetes.config.options import OPTIONS
from gpuhook.kubernetes.config.reader import read

names = st.sampled_from(sorted({key.name for _, key in config_keys.walk()}))
words = st.sampled_from(
    ["v1", "none", "mixed", "all", "nvidia.com/gpu", "gpu", "60s", "infinite", "1Gi", "/mps", "[0]"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | words
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)
# Pieces that YAML has a meaning for, put together at random.
pieces = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"%@`#~\n\t \\", "<<", "---", "...", "!!int ", "!!set ", "&a ", "*a", "\ud7ff"]
)
soups = st.lists(pieces | names | words | st.text(max_size=3), max_size=40).map("".join)


def replicas(index: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return entries of the resource of that number."""
    return st.fixed_dictionaries(
        {"name": st.just(f"r{index}"), "replicas": st.integers(1, 4096)},
        optional={
            "rename": st.just(f"shared-{index}"),
            "devices": st.just("all") | st.integers(1, 9) | st.lists(words, min_size=1, max_size=3),
        },
    )


entries = st.integers(1, 3).flatmap(lambda n: st.tuples(*map(replicas, range(n)))).map(list)
good = st.fixed_dictionaries(
    {},
    optional={
        "version": st.just("v1"),
        "flags": st.fixed_dictionaries(
            {},
            optional={
                "migStrategy": st.sampled_from(["none", "single", "mixed"]),
                "failOnInitError": st.booleans(),
                "nvidiaDriverRoot": st.just("/driver"),
                "gfd": st.fixed_dictionaries(
                    {"sleepInterval": st.integers(10**8, 2**60) | st.just("infinite")}
                ),
            },
        ),
        "sharing": st.fixed_dictionaries(
            {
                "timeSlicing": st.fixed_dictionaries(
                    {"resources": entries}, optional={"renameByDefault": st.booleans()}
                )
            }
        ),
        "gpuhook": st.fixed_dictionaries(
            {},
            optional={
                "excludeDevices": st.lists(words, max_size=3),
                "minFreeMemory": st.integers(0, 2**62),
                "health": st.fixed_dictionaries(
                    {},
                    optional={
                        "criticalXids": st.lists(st.integers(1, 200), max_size=4),
                        "ignoredXids": st.lists(st.integers(1, 200), max_size=4) | st.just("all"),
                        "pollInterval": st.integers(10**8, 2**50),
                    },
                ),
            },
        ),
    },
)


def judged(content: bytes) -> None:
    """Read a file, and see that it is told why when there is no configuration."""
    reading = read(content, "file")
    errors = [found for found in reading.findings if found.severity == "error"]
    assert (reading.configuration is None) == bool(errors)
    for found in reading.findings:
        assert f"{found} {found.hint}".isprintable()
    if reading.configuration is not None:
        config_source.digest(reading.configuration)


@given(content=st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    """Bytes of any kind are read, or told about."""
    judged(content)


@given(text=soups)
def test_any_text(text: str) -> None:
    """So is what looks a little like YAML."""
    judged(text.encode("utf-8", "replace"))


@given(tree=trees)
def test_any_document(tree: object) -> None:
    """So is a document of any shape, as YAML and as JSON."""
    judged(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))
    judged(json.dumps(tree).encode())


@given(document=good)
def test_what_is_printed_is_read_back(document: object) -> None:
    """The configuration as a file gives the same configuration, and no other findings."""
    reading = read(json.dumps(document).encode(), "file")
    made = reading.configuration
    assert made is not None
    text = yaml.safe_dump(config_build.document(made))
    again = read(text.encode(), "file")
    before, after = (
        {(found.path, found.message) for found in one.findings} for one in (reading, again)
    )
    assert after <= before
    assert again.configuration == made
    assert config_source.digest(again.configuration) == config_source.digest(made)


@given(option=st.sampled_from(OPTIONS), text=st.text(max_size=20) | words)
def test_any_text_of_an_option(option: Any, text: str) -> None:
    """A text for an option fits, or is refused in words."""
    variable = option.variables[-1]
    for said in (options_given({option.name: [text]}, {}), options_given({}, {variable: text})):
        assert all(f"{found} {found.hint}".isprintable() for found in said.findings)
