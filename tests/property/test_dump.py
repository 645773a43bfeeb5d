# SPDX-License-Identifier: Apache-2.0
"""Any node survives its dump."""

from __future__ import annotations

import string
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.gpu.compute_policy import TIME_SLICES
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import (
    DeviceNode,
    Driver,
    DriverFile,
    Gpu,
    Link,
    MigInstance,
    Node,
)
from gpuhook.vendors.nvidia.warm.nvml_constants import COMPUTE_MODES

hexadecimal = st.text("0123456789ABCDEF", min_size=2, max_size=2)
bus_ids = st.builds("00000000:{}:{}.{}".format, hexadecimal, hexadecimal, st.integers(0, 7))
versions = st.lists(st.integers(0, 999), min_size=2, max_size=3).map(
    lambda v: ".".join(map(str, v))
)
# 'unknown' is the one word that cannot be a fact.
words = st.text(string.ascii_letters + string.digits + " :-.'\"#é{}", min_size=1).filter(
    lambda word: word != "unknown"
)
paths = words.map("/".__add__)
numbers = st.integers(0, 2**63)

drivers = st.builds(
    Driver,
    version=st.none() | versions,
    module_version=st.none() | versions,
    cuda=st.none() | versions,
    nvml=st.none() | paths,
)
instances = st.builds(
    MigInstance,
    index=st.integers(0, 7),
    uuid=st.uuids().map("MIG-{}".format),
    gpu_instance=st.integers(0, 14),
    compute_instance=st.integers(0, 7),
    profile=st.none() | words,
    memory_bytes=st.none() | numbers,
    multiprocessors=st.none() | numbers,
    has_graphics=st.none() | st.booleans(),
    gpu_instance_minor=st.none() | numbers,
    trouble=st.none() | words,
)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 999),
    uuid=st.none() | st.uuids().map("GPU-{}".format),
    minor=st.none() | st.integers(0, 1048575),
    pci_bus_id=st.none() | bus_ids,
    name=st.none() | words,
    brand=st.none() | words,
    architecture=st.none() | words,
    compute_capability=st.none() | versions,
    memory_bytes=st.none() | numbers,
    numa_node=st.none() | st.integers(0, 64),
    mig_mode=st.none() | st.sampled_from(["enabled", "disabled", "unsupported"]),
    compute_mode=st.none() | st.sampled_from(list(COMPUTE_MODES.values())),
    time_slice=st.none() | st.sampled_from(TIME_SLICES),
    lost=st.none() | words,
    instances=st.lists(instances, max_size=3, unique_by=lambda one: one.index).map(tuple),
    drm=st.lists(st.integers(0, 255).map("renderD{}".format), max_size=2).map(tuple),
)


def different(key: str, several: Sequence[Gpu | MigInstance]) -> bool:
    known = [getattr(gpu, key) for gpu in several if getattr(gpu, key) is not None]
    return len(set(known)) == len(known)


several_gpus = st.lists(gpus, max_size=4).filter(
    lambda many: (
        all(different(key, many) for key in ("index", "uuid", "minor", "pci_bus_id"))
        and different("uuid", [one for gpu in many for one in gpu.instances])
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
def test_round_trip(node: Node, form: str) -> None:
    """Reading what was written gives the same node, whatever its texts look like to YAML."""
    assert dump_file.parse(dump_file.text(node, form).encode(), "node") == node
