# SPDX-License-Identifier: Apache-2.0
"""Limits of memory, memory units and the guard in the configuration of the device plugin."""

from __future__ import annotations

import json
import textwrap

import jsonschema
import pytest
import yaml

from gpuhook.device_plugin.config import configuration as config_build
from gpuhook.device_plugin.config.config_reader import Override, read
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.gpuhook_section import (
    Guard,
    Interposer,
    InterposerEdits,
    InterposerMount,
    InterposerNode,
)
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.device_plugin.config.sharing_section import SharedResource, Sharing
from tests.unit.config_texts import (
    ENTRY,
    UNITS,
    WITH_MPS_ROOT,
    good,
    lines,
    marked,
    one,
    parsed,
    sharing,
)

GIB, MIB = 1 << 30, 1 << 20
GPU = "nvidia.com/gpu"

WHOLE = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: gpu, devices: [0], replicas: 4, memory: fair, timeSlice: short, hints: pytorch}
    - {name: gpu, devices: [1], replicas: 4, memory: 8Gi, oversubscribe: true, hints: [jax, cupy]}
    - {name: gpu, devices: [2], replicas: {memory: 4Gi}, computeMode: default}
    - {name: gpu, devices: [3], replicas: {memory: 4Gi}, memory: none}
    - {name: gpu, devices: [4], replicas: 1, memory: fair, computeMode: exclusive-process}
    - {name: gpu, replicas: 2, memory: none, interposer: hami}
gpuhook:
  memoryReserve: 1Gi
  guard:
    action: kill
    grace: 0s
    killAfter: 5s
    tolerance: 1
    shortestInterval: 500ms
    longestInterval: 1m
  interposers:
  - name: hami
    containerEdits:
      env:
      - LD_PRELOAD=/usr/lib/hami/libvgpu.so
      - HAMI_CACHE=/run/hami/{uuid}?a=b
      mounts:
      - {hostPath: "/opt/hami/{index}", containerPath: /usr/lib/hami}
      - {hostPath: /run/hami, containerPath: /run/hami, options: [rw, rbind, rprivate]}
      deviceNodes:
      - path: /dev/fuse
"""


def valid(text: str) -> bool:
    validator = jsonschema.Draft202012Validator(json.loads(config_build.schema_text()))
    return bool(validator.is_valid(yaml.safe_load(text)))


def test_file_with_all_keys_is_valid() -> None:
    """The reader and the JSON schema accept it."""
    made = good(WHOLE)
    assert made.sharing == Sharing(
        strategy="time-slicing",
        resources=(
            SharedResource(
                GPU, 4, devices=("0",), memory="fair", time_slice="short", hints=("pytorch",)
            ),
            SharedResource(
                GPU, 4, None, ("1",), memory=8 * GIB, oversubscribe=True, hints=("jax", "cupy")
            ),
            SharedResource(GPU, devices=("2",), replica_memory=4 * GIB, compute_mode="default"),
            SharedResource(GPU, devices=("3",), replica_memory=4 * GIB, memory="none"),
            SharedResource(GPU, 1, devices=("4",), memory="fair", compute_mode="exclusive-process"),
            SharedResource(GPU, 2, memory="none", interposer="hami"),
        ),
    )
    assert made.own.memory_reserve == GIB
    assert made.own.guard == Guard("kill", 0.0, 5.0, 1.0, 0.5, 60.0)
    assert made.own.interposers == (
        Interposer(
            "hami",
            InterposerEdits(
                env=(
                    ("LD_PRELOAD", "/usr/lib/hami/libvgpu.so"),
                    ("HAMI_CACHE", "/run/hami/{uuid}?a=b"),
                ),
                mounts=(
                    InterposerMount("/opt/hami/{index}", "/usr/lib/hami"),
                    InterposerMount("/run/hami", "/run/hami", read_only=False),
                ),
                device_nodes=(InterposerNode("/dev/fuse"),),
            ),
        ),
    )
    assert valid(WHOLE)


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("", SharedResource(GPU, rename="nvidia.com/gpumem", unit=GIB)),
        ("unit: GiB", SharedResource(GPU, rename="nvidia.com/gpumem", unit=GIB)),
        ("unit: MiB, rename: x", SharedResource(GPU, rename="nvidia.com/x", unit=MIB)),
        ("unit: 512Mi, rename: gpu", SharedResource(GPU, rename=GPU, unit=512 * MIB)),
        (
            "devices: 2, timeSlice: long, hints: jax",
            SharedResource(
                GPU, 0, "nvidia.com/gpumem", 2, unit=GIB, time_slice="long", hints=("jax",)
            ),
        ),
    ],
)
def test_memory_units_have_defaults(text: str, resource: SharedResource) -> None:
    """The defaults are units of 1 GiB with the name nvidia.com/gpumem, packed."""
    found = good(UNITS.format(text)).sharing
    assert found == Sharing(strategy="memory-units", resources=(resource,), policy="packed")
    assert valid(UNITS.format(text))


def test_policy_is_a_key_of_memory_units() -> None:
    """It is not a key of a resource."""
    text = "sharing: {memoryUnits: {policy: spread, resources: [{name: gpu}]}}"
    assert good(text).sharing.policy == "spread"


def test_mps_has_limits_and_a_thread_percentage() -> None:
    text = "name: gpu, replicas: {memory: 6Gi}, memory: 5Gi, activeThreadPercentage: 30"
    made = good(WITH_MPS_ROOT + sharing(f"resources:\n- {{{text}}}\n", "mps"))
    assert made.sharing.resources == (
        SharedResource(
            GPU,
            replica_memory=6 * GIB,
            memory=5 * GIB,
            active_thread_percentage=30,
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        UNITS.format("unit: MiB, hints: [pytorch, jax]"),
        UNITS.format("unit: 3Mi").replace("resources", "policy: spread, resources"),
        WITH_MPS_ROOT + sharing("resources: [{name: gpu, replicas: 2, memory: none}]", "mps"),
    ],
)
def test_printed_configuration_has_the_same_meaning(text: str) -> None:
    """The JSON schema accepts it."""
    made = good(text)
    document = config_build.document(made)
    assert good(json.dumps(document)) == made
    assert valid(json.dumps(document))


FAIR = one("name: gpu, replicas: 2, memory: fair")
WARNINGS = [
    (
        "gpuhook: {guard: {action: ^kill}}\n"
        + WITH_MPS_ROOT
        + sharing("resources:\n- {name: gpu, replicas: 2}", "mps"),
        (
            "warning: gpuhook.guard.action: has no effect with mps: the MPS server "
            "enforces the limits of its clients -> remove it, or share by timeSlicing"
        ),
    ),
    (
        one("name: gpu, replicas: 2, ^memory: "),
        ("warning: sharing.timeSlicing.resources[0].memory: is empty: its default applies"),
    ),
    (
        one("name: gpu, replicas: {memory: 4Gi}, memory: ^fair"),
        (
            "warning: sharing.timeSlicing.resources[0].memory: with `replicas: {memory: "
            "4Gi}` a fair share can be larger than 4Gi: it is an equal part of the whole "
            "device -> omit `memory` for 4Gi each, or set a number of replicas for equal "
            "parts"
        ),
    ),
    (
        one("name: gpu, replicas: 2, ^memroy: fair"),
        (
            "warning: sharing.timeSlicing.resources[0].memroy: unknown key, ignored -> did you "
            "mean sharing.timeSlicing.resources[0].memory?"
        ),
    ),
    (
        "^limits: {onFailure: refuse}",
        (
            "warning: limits: unknown key, ignored -> limits is a key of /etc/gpuhook/config.yaml, "
            "the settings of the node's runtime"
        ),
    ),
    (
        one("name: gpu, replicas: 2, oversubscribe: ^true"),
        (
            f"warning: {ENTRY}.oversubscribe: has no effect "
            "without an amount in `memory`: fair shares never exceed the memory of the "
            "device -> set `memory: 8Gi`, or remove it"
        ),
    ),
    (
        one("name: gpu, replicas: 2, hints: ^[jax]"),
        (
            f"warning: {ENTRY}.hints: has no effect without a limit: hints are computed from it "
            "-> set `memory: fair`, or an amount"
        ),
    ),
    (
        "gpuhook: {memoryReserve: ^1Gi}",
        (
            "warning: gpuhook.memoryReserve: has no effect without a memory limit in "
            "`sharing` -> set `memory: fair` for a shared resource"
        ),
    ),
    (
        "gpuhook: {memoryReserve: ^20Gi}\n" + FAIR,
        (
            "warning: gpuhook.memoryReserve: 20Gi of each device remain unused -> the "
            "default is 256Mi"
        ),
    ),
    (
        "gpuhook: {guard: {action: ^kill}}",
        (
            "warning: gpuhook.guard.action: has no effect without a memory limit in "
            "`sharing` -> set `memory: fair` for a shared resource"
        ),
    ),
    (
        "gpuhook: {guard: {action: terminate, killAfter: ^3s}}\n" + FAIR,
        (
            "warning: gpuhook.guard.killAfter: has no effect without action kill -> set "
            "gpuhook.guard.action: kill"
        ),
    ),
    (
        "gpuhook: {guard: {grace: ^3s}}",
        (
            "warning: gpuhook.guard.grace: has no effect without action terminate or kill -> set "
            "gpuhook.guard.action: terminate"
        ),
    ),
    (
        WITH_MPS_ROOT + sharing("resources:\n- {name: gpu, replicas: 2, ^timeSlice: short}", "mps"),
        (
            "warning: sharing.mps.resources[0].timeSlice: unknown key, ignored -> did you mean "
            "sharing.timeSlicing.resources[].timeSlice?"
        ),
    ),
]


@pytest.mark.parametrize(("text", "warning"), WARNINGS)
def test_key_without_effect_is_a_warning(text: str, warning: str) -> None:
    """The configuration applies."""
    text, place = marked(text)
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {warning}"]
    assert reading.configuration is not None


@pytest.mark.parametrize(
    "text",
    [
        UNITS.format("hints: jax") + "gpuhook: {memoryReserve: 1Gi, guard: {action: kill}}",
        one("name: gpu, replicas: {memory: 4Gi}, hints: [jax]"),
        one("name: gpu, replicas: {memory: 4Gi}, memory: 6Gi, oversubscribe: true"),
        one("name: gpu, replicas: 2, hints: []"),
        one("name: gpu, replicas: 48, memory: 32Gi, oversubscribe: true"),
    ],
)
def test_hints_and_guard_apply_to_limits_of_the_strategy(text: str) -> None:
    """Memory units and replicas by size limit memory without `memory`."""
    good(text)


def test_contradiction_by_a_guard_option_names_the_option() -> None:
    overrides = {"gpuhook.guard.shortestInterval": Override(20.0, "--guard-shortest-interval")}
    (line,) = lines(read(b"gpuhook: {guard: {longestInterval: 10s}}", "f", overrides))
    assert line.startswith("--guard-shortest-interval: error: gpuhook.guard.shortestInterval: ")


def test_file_of_contradictions_takes_bounded_time() -> None:
    entry = "- {name: gpu, replicas: 2, interposer: x, computeMode: exclusive-process}\n"
    found = parsed(sharing("resources:\n" + entry * 256)).findings
    assert len(found) == 256 * 3 - 1
    names = "".join(f"  - {{name: x, containerEdits: {{env: [A={n}]}}}}\n" for n in range(256))
    assert len(parsed("gpuhook:\n  interposers:\n" + textwrap.indent(names, "")).findings) == 511


def test_memory_units_can_have_the_name_of_their_resource() -> None:
    made = good(
        "resources: {gpus: [{pattern: '*', name: gpumem}]}\n"
        "sharing: {memoryUnits: {resources: [{name: gpumem}]}}"
    )
    assert made.sharing.resources[0].name == "nvidia.com/gpumem"


def test_overridden_key_of_the_file_is_a_warning() -> None:
    """It names the key and its override."""
    source = "the environment variable DEVICE_LIST_STRATEGY"
    path = "flags.plugin.deviceListStrategy"
    text = b"flags: {plugin: {deviceListStrategy: volume-mounts}}"
    (line,) = lines(read(text, "plugin.yaml", {path: Override(("envvar",), source)}))
    assert line == (
        f"1:38: warning: {path}: has no effect: {source} sets another value and takes precedence "
        "-> remove one of the two"
    )
    assert read(text, "f", {path: Override(("volume-mounts",), source)}).findings == ()


def test_defaults_in_the_help_are_correct() -> None:
    shown = [option for option in OPTIONS if option.key and option.default]
    assert len(shown) > 30
    for option in shown:
        found = read_overrides({option.name: [option.default]}, {})
        assert read(b"", "", found.overrides).configuration == Configuration(), option.name
