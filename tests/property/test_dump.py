# SPDX-License-Identifier: Apache-2.0
"""A dump of any node is read back."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import (
    DeviceNode,
    Driver,
    DriverFile,
    FactRule,
    Gpu,
    Link,
    MigInstance,
    Node,
    fact_rules,
)

# A fact cannot be the word 'unknown'.
words = st.text(string.ascii_letters + string.digits + " :-.'\"#é{}", min_size=1).filter(
    lambda word: word != "unknown"
)
paths = words.map("/".__add__)
numbers = st.integers(0, 2**63)


def known(hint: Any, rule: FactRule) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a fact, without None."""
    values = rule.values or tuple((rule.words or {}).values() if rule.is_optional else ())
    if values:
        return st.sampled_from(values)
    if rule.pattern:
        texts = st.from_regex(rule.pattern, fullmatch=True)
        texts = texts.filter(lambda text: text != "unknown" and "\n" not in text)
        is_tuple = hint == tuple[str, ...]
        return st.lists(texts, max_size=2).map(tuple) if is_tuple else texts
    if hint == tuple[MigInstance, ...]:
        return st.lists(instances, max_size=3, unique_by=lambda one: one.index).map(tuple)
    if hint in (bool, bool | None):
        return st.booleans()
    return numbers if hint in (int, int | None) else words


def facts(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for objects of a class of facts, each with unknown facts."""
    hints, rules = get_type_hints(kind), fact_rules(kind)
    found = {}
    for one in fields(kind):
        value = known(hints[one.name], rules[one.name])
        found[one.name] = st.none() | value if one.default is None else value
    assert any(one.default is not MISSING for one in fields(kind))
    return st.builds(kind, **found)


drivers = facts(Driver)
instances = facts(MigInstance)
gpus = facts(Gpu)


def is_unique(key: str, several: Sequence[Gpu | MigInstance]) -> bool:
    values = [getattr(gpu, key) for gpu in several if getattr(gpu, key) is not None]
    return len(set(values)) == len(values)


several_gpus = st.lists(gpus, max_size=4).filter(
    lambda many: (
        all(is_unique(key, many) for key in ("index", "uuid", "minor", "pci_bus_id"))
        and is_unique("uuid", [one for gpu in many for one in gpu.instances])
    )
)
nodes = st.builds(
    Node,
    driver=drivers,
    gpus=several_gpus.map(tuple),
    device_nodes=st.lists(
        st.builds(
            DeviceNode,
            path=paths,
            host_path=paths,
            major=st.integers(0, 4095),
            minor=st.integers(0, 1048575),
            mode=st.integers(0, 0o7777),
            uid=st.integers(0, 2**32),
            gid=st.integers(0, 2**32),
        ),
        max_size=3,
    ).map(tuple),
    files=st.lists(
        st.builds(
            DriverFile,
            kind=st.sampled_from(["library", "plugin", "binary", "firmware", "socket", "config"]),
            host_path=paths,
            container_path=paths,
            soname=st.none() | words,
            capabilities=st.sampled_from([(), ("compute",), ("graphics", "video")]),
        ),
        max_size=3,
    ).map(tuple),
    links=st.lists(st.builds(Link, path=paths, target=words), max_size=3).map(tuple),
    library_dirs=st.lists(paths, max_size=3).map(tuple),
    majors=st.dictionaries(words, st.integers(0, 4095), max_size=3),
    driver_root=paths,
    dev_root=paths,
    masks_params=st.booleans(),
    fingerprint=words,
    warnings=st.lists(words, max_size=2).map(tuple),
)


@given(node=nodes, form=st.sampled_from(["yaml", "json"]))
def test_node_is_read_back_from_its_dump(node: Node, form: str) -> None:
    """A text may have the form of a YAML number or date."""
    assert dump_file.parse(dump_file.text(node, form).encode(), "node") == node
