# SPDX-License-Identifier: Apache-2.0
"""The reader of the plugin's configuration raises no exception, and reads its own output."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config import configuration as config_build
from gpuhook.device_plugin.config.config_reader import read
from gpuhook.device_plugin.config.grammar.grammar import walk
from gpuhook.device_plugin.config.overrides import read_overrides as options_given
from gpuhook.device_plugin.config.plugin_options import OPTIONS

names = st.sampled_from(sorted({key.name for _, key in walk(config_build.ROOT_SECTION)}))
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
# Random sequences of YAML tokens.
pieces = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"%@`#~\n\t \\", "<<", "---", "...", "!!int ", "!!set ", "&a ", "*a", "\ud7ff"]
)
soups = st.lists(pieces | names | words | st.text(max_size=3), max_size=40).map("".join)

shares = st.sampled_from(["fair", "none", "4Gi", "1500M", 256 << 20])
amounts = st.sampled_from(["4Gi", "256Mi", "7G", 1 << 40])
some_hints = st.lists(st.sampled_from(["tensorflow", "jax", "pytorch"]), max_size=3)
extras = {"interposer": st.sampled_from(["first", "second"])}
hints = {"hints": some_hints | st.just("paddle")}
slices = {
    "timeSlice": st.sampled_from(["default", "short", "medium", "long"]),
    "computeMode": st.just("default"),
}
choice = {"devices": st.just("all") | st.integers(1, 9) | st.lists(words, min_size=1, max_size=3)}


def fits(entry: dict[str, Any]) -> bool:
    """Return whether limits cannot exceed the memory, or are allowed to."""
    return entry.get("memory", "fair") in ("fair", "none") or "oversubscribe" in entry


def entries(of_strategy: dict[str, Any], required: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return entries of one to three resources."""

    def entry(index: int) -> st.SearchStrategy[dict[str, Any]]:
        optional = choice | extras | of_strategy
        if not required:  # units of two resources have no common default name
            of_index = {"name": st.just(f"r{index}"), "rename": st.just(f"shared-{index}")}
            return st.fixed_dictionaries(of_index, optional=optional)
        optional = optional | {"rename": st.just(f"shared-{index}")}
        made = st.fixed_dictionaries({"name": st.just(f"r{index}")} | required, optional=optional)
        return made.filter(fits)

    return st.integers(1, 3).flatmap(lambda n: st.tuples(*map(entry, range(n)))).map(list)


counts = {"replicas": st.integers(1, 4096) | st.fixed_dictionaries({"memory": amounts})}
limits = {"memory": shares, "oversubscribe": st.just(True)}
replicas = st.fixed_dictionaries(
    {"resources": entries(limits | slices | hints, counts)},
    optional={"renameByDefault": st.booleans()},
)
clients = st.fixed_dictionaries(
    {"resources": entries(limits | {"activeThreadPercentage": st.integers(1, 100)}, counts)},
    optional={"renameByDefault": st.booleans()},
)
units = st.fixed_dictionaries(
    {
        "resources": entries(
            slices | hints | {"unit": st.sampled_from(["GiB", "MiB", "3Mi", 512 << 20])}, {}
        )
    },
    optional={"policy": st.sampled_from(["packed", "spread"])},
)
strategies = (
    st.fixed_dictionaries({"timeSlicing": replicas})
    | st.fixed_dictionaries({"mps": clients})
    | st.fixed_dictionaries({"memoryUnits": units})
)


def interposer(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return interposers of that name."""
    options = st.sampled_from([[], ["ro"], ["rw", "rbind"], "rw", ["bind"]])
    mounts = st.sampled_from(["/lib/x.so", "/run/x", "/opt/{uuid}"]).flatmap(
        lambda path: st.fixed_dictionaries(
            {"hostPath": st.just(path), "containerPath": st.just("/lib/x.so")},
            optional={"options": options},
        )
    )
    variables = st.sampled_from(["A=1", "B={index}", "C=", "D=a=b,{replicas}", "E=x y"])
    edits = st.fixed_dictionaries(
        {"env": st.lists(variables, min_size=1, max_size=3, unique=True)},
        optional={
            "mounts": st.lists(mounts, max_size=1),
            "deviceNodes": st.lists(st.just({"path": "/dev/fuse"}), max_size=1),
        },
    )
    return st.fixed_dictionaries({"name": st.just(name), "containerEdits": edits})


flags = st.fixed_dictionaries(
    {"mpsRoot": st.just("/mps")},
    optional={
        "migStrategy": st.sampled_from(["none", "single", "mixed"]),
        "failOnInitError": st.booleans(),
        "nvidiaDriverRoot": st.just("/driver"),
        "gfd": st.fixed_dictionaries(
            {"sleepInterval": st.integers(10**8, 2**60) | st.just("infinite")}
        ),
    },
)
own = st.fixed_dictionaries(
    {"interposers": st.tuples(interposer("first"), interposer("second")).map(list)},
    optional={
        "memoryReserve": st.sampled_from([0, "256Mi", "1Gi", 2**20 + 123]),
        "guard": st.fixed_dictionaries(
            {},
            optional={
                "action": st.sampled_from(["none", "report", "terminate", "kill"]),
                "grace": st.just(0) | st.integers(10**9, 2**50),
                "killAfter": st.integers(10**9, 2**50),
                "tolerance": st.floats(1, 10) | st.integers(1, 10),
                "shortestInterval": st.integers(10**8, 10**9),
                "longestInterval": st.integers(10**9, 2**50),
            },
        ),
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
)


def is_consistent(document: dict[str, Any]) -> bool:
    """Return whether the strategies of a document do not exclude each other."""
    is_mixed = document["flags"].get("migStrategy") == "mixed"
    return not is_mixed or "mps" not in document.get("sharing", {})


files: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"flags": flags, "gpuhook": own},
    optional={"version": st.just("v1"), "sharing": strategies},
)
good = files.filter(is_consistent)


def assert_read(content: bytes) -> None:
    """Read a file, and check that there is a configuration or an error."""
    reading = read(content, "file")
    errors = [found for found in reading.findings if found.severity == "error"]
    assert (reading.configuration is None) == bool(errors)
    for found in reading.findings:
        assert f"{found} {found.hint}".isprintable()
    if reading.configuration is not None:
        config_source.digest(reading.configuration)


@given(content=st.binary(max_size=200))
def test_any_bytes_give_a_configuration_or_an_error(content: bytes) -> None:
    assert_read(content)


@given(text=soups)
def test_any_text_gives_a_configuration_or_an_error(text: str) -> None:
    """The text may contain tokens of YAML."""
    assert_read(text.encode("utf-8", "replace"))


@given(tree=trees)
def test_any_document_gives_a_configuration_or_an_error(tree: object) -> None:
    """The document is read as YAML and as JSON."""
    assert_read(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))
    assert_read(json.dumps(tree).encode())


@given(document=good)
def test_printed_configuration_is_read_back(document: object) -> None:
    """It has no other findings."""
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
def test_any_text_of_an_option_is_read_or_a_printable_error(option: Any, text: str) -> None:
    variable = option.variables[-1]
    for parsed in (options_given({option.name: [text]}, {}), options_given({}, {variable: text})):
        assert all(f"{found} {found.hint}".isprintable() for found in parsed.findings)
