# SPDX-License-Identifier: Apache-2.0
"""Errors in limits of memory, units and the guard: place, requirement, value and hint."""

from __future__ import annotations

import pytest

from tests.unit.config_texts import ENTRY, UNITS, WITH_MPS_ROOT, lines, marked, one, parsed, sharing

CONTEXT = "a CUDA context and its libraries alone need this much"


WRONG = {
    "a limit that is none": (
        one("name: gpu, replicas: 2, memory: ^half"),
        (
            f"error: {ENTRY}.memory: must be fair, none or an amount of memory, found the text "
            '"half" -> write it like 512Mi or 2Gi'
        ),
    ),
    "a limit below a context": (
        one("name: gpu, replicas: 2, memory: ^100Mi"),
        f'error: {ENTRY}.memory: must be 256Mi or more, found the text "100Mi" -> {CONTEXT}',
    ),
    "a limit above any device": (
        one("name: gpu, replicas: 2, memory: ^2Ti"),
        (
            f"error: {ENTRY}.memory: must be 1024Gi or less, "
            'found the text "2Ti" -> no GPU has this much memory'
        ),
    ),
    "replicas below a context": (
        one("name: gpu, replicas: {memory: ^255Mi}"),
        (
            f'error: {ENTRY}.replicas.memory: must be 256Mi or more, found the text "255Mi" -> '
            f"{CONTEXT}"
        ),
    ),
    "replicas that say no memory": (
        one("name: gpu, replicas: ^{}"),
        f"error: {ENTRY}.replicas.memory: is missing",
    ),
    "replicas that are a list": (
        one("name: gpu, replicas: ^[4]"),
        f"error: {ENTRY}.replicas: must be an integer, found a list",
    ),
    "limits above the replicas' memory": (
        one("name: gpu, replicas: {memory: 4Gi}, memory: ^6Gi"),
        (
            f"error: {ENTRY}.memory: a limit of 6Gi for replicas "
            "of 4Gi: together they can exceed the memory of the device -> set "
            "`oversubscribe: true` to allow that, or remove `memory`"
        ),
    ),
    "limits above all devices": (
        one("name: gpu, replicas: 48, memory: ^32Gi"),
        (
            f"error: {ENTRY}.memory: 48 limits of 32Gi add up to "
            "1536Gi, more than any GPU has -> set `oversubscribe: true` to allow that, "
            "or `memory: fair`"
        ),
    ),
    "exclusive-process with replicas": (
        one("name: gpu, replicas: 2, computeMode: ^exclusive-process"),
        (
            f"error: {ENTRY}.computeMode: exclusive-process "
            "prevents 2 replicas: a second process cannot create a context -> remove it, "
            "or set `replicas: 1`"
        ),
    ),
    "exclusive-process with as many as fit": (
        one("name: gpu, replicas: {memory: 4Gi}, computeMode: ^exclusive-process"),
        (
            f"error: {ENTRY}.computeMode: exclusive-process "
            "prevents several containers on a device: a second process cannot create a "
            "context -> remove it, or set `replicas: 1`"
        ),
    ),
    "exclusive-process with units": (
        UNITS.format("computeMode: ^exclusive-process"),
        (
            "error: sharing.memoryUnits.resources[0].computeMode: exclusive-process "
            "prevents several containers on a device: a second process cannot create a "
            "context -> remove it"
        ),
    ),
    "a time slice that is none": (
        one("name: gpu, replicas: 2, timeSlice: ^2ms"),
        (
            f"error: {ENTRY}.timeSlice: must be one of default, short, medium, long, found the "
            'text "2ms"'
        ),
    ),
    "a hint for nobody": (
        one("name: gpu, replicas: 2, memory: fair, hints: [pytorch, ^mxnet]"),
        (
            f"error: {ENTRY}.hints[1]: must be one of tensorflow, pytorch, jax, cupy, paddle, "
            'found the text "mxnet"'
        ),
    ),
    "more threads than all": (
        WITH_MPS_ROOT
        + sharing("resources:\n- {name: gpu, replicas: 2, activeThreadPercentage: ^101}", "mps"),
        ("error: sharing.mps.resources[0].activeThreadPercentage: must be 100 or less, found 101"),
    ),
    "a unit that is too small": (
        UNITS.format("unit: ^1Ki"),
        (
            "error: sharing.memoryUnits.resources[0].unit: must be 1Mi or more, found "
            'the text "1Ki" -> the driver limits memory in MiB'
        ),
    ),
    "a unit of a part of a MiB": (
        UNITS.format("unit: ^1G"),
        (
            "error: sharing.memoryUnits.resources[0].unit: must be whole MiB, found the text "
            '"1G" -> write 954Mi'
        ),
    ),
    "a unit that is none": (
        UNITS.format("unit: ^GB"),
        (
            "error: sharing.memoryUnits.resources[0].unit: must be GiB, MiB or an amount of "
            'memory, found the text "GB" -> write it like 512Mi or 2Gi'
        ),
    ),
    "two resources of units with one name": (
        "sharing: {memoryUnits: {resources: [{name: gpu}, ^{name: t4}]}}",
        (
            "error: sharing.memoryUnits.resources[1]: sharing.memoryUnits.resources[0] "
            "already has the name nvidia.com/gpumem: each name is for one resource"
        ),
    ),
    "units and time slices": (
        one("name: gpu, replicas: 2") + "  memoryUnits: ^{resources: [{name: gpu}]}",
        (
            "error: sharing.memoryUnits: timeSlicing and memoryUnits are mutually "
            "exclusive: a device can be shared in only one way -> keep one of them"
        ),
    ),
    "all strategies": (
        WITH_MPS_ROOT
        + one("name: gpu, replicas: 2")
        + "  mps: {resources: [{name: gpu, replicas: 2}]}\n"
        + "  memoryUnits: ^{resources: [{name: gpu}]}",
        (
            "error: sharing.memoryUnits: timeSlicing, mps and memoryUnits are "
            "mutually exclusive: a device can be shared in only one way -> keep one of them"
        ),
    ),
    "a reserve above any device": (
        "gpuhook: {memoryReserve: ^4Ti}",
        (
            'error: gpuhook.memoryReserve: must be 1024Gi or less, found the text "4Ti" '
            "-> no GPU has this much memory"
        ),
    ),
    "a tolerance below the limit": (
        "gpuhook: {guard: {tolerance: ^0.9}}",
        "error: gpuhook.guard.tolerance: must be 1 to 10, found 0.9",
    ),
    "a tolerance that is no number": (
        "gpuhook: {guard: {tolerance: ^.nan}}",
        "error: gpuhook.guard.tolerance: must be 1 to 10, found nan",
    ),
    "a tolerance in words": (
        "gpuhook: {guard: {tolerance: ^some}}",
        'error: gpuhook.guard.tolerance: must be a number, found the text "some"',
    ),
    "a grace of nanoseconds": (
        "gpuhook: {guard: {action: kill, grace: ^10}}\n"
        + one("name: gpu, replicas: 2, memory: fair"),
        (
            "error: gpuhook.guard.grace: must be 0, or 1s or longer, found 10 -> write it like "
            "90s, 1m30s or 500ms; a number is nanoseconds"
        ),
    ),
    "a grace of less than a look": (
        "gpuhook: {guard: {grace: ^500ms}}",
        'error: gpuhook.guard.grace: must be 0, or 1s or longer, found the text "500ms"',
    ),
    "a limit of bytes": (
        one("name: gpu, replicas: 2, memory: ^4096"),
        (
            "error: sharing.timeSlicing.resources[0].memory: must be 256Mi or more, found 4096 -> "
            "a number without a unit is bytes: write 4096Mi"
        ),
    ),
    "a reserve of bytes": (
        "gpuhook: {memoryReserve: ^512}",
        (
            "error: gpuhook.memoryReserve: must be 1Mi or more, found 512 -> a number without a "
            "unit is bytes: write 512Mi"
        ),
    ),
    "a unit of a byte": (
        UNITS.format("unit: ^1"),
        (
            "error: sharing.memoryUnits.resources[0].unit: must be 1Mi or more, found 1 -> a "
            "number without a unit is bytes: write 1Gi"
        ),
    ),
    "a size for a number of replicas": (
        one("name: gpu, replicas: ^4Gi"),
        (
            "error: sharing.timeSlicing.resources[0].replicas: must be an integer, found "
            'the text "4Gi"'
        ),
    ),
    "replicas of units": (
        UNITS.format("^replicas: 4"),
        (
            "error: sharing.memoryUnits.resources[0].replicas: is not supported with "
            "memoryUnits: a unit is its own limit -> remove it"
        ),
    ),
    "hints of what the runtime does not know": (
        WITH_MPS_ROOT + sharing("resources:\n- {name: gpu, replicas: 2, ^hints: jax}", "mps"),
        (
            "error: sharing.mps.resources[0].hints: is not supported with mps: the "
            "runtime that sets the variables does not know the limit -> remove it, and "
            "set the variables in the pod"
        ),
    ),
    "units of what pods ask for": (
        "sharing: {memoryUnits: {resources: [{name: ^nvidia.com/gpumem}]}}",
        (
            "error: sharing.memoryUnits.resources[0].name: nvidia.com/gpumem is not a "
            "resource of GPUs: `name` is the resource to share, and `rename` the "
            "resource that pods request -> write `name: nvidia.com/gpu`, `rename: "
            "nvidia.com/gpumem`"
        ),
    ),
    "no time to end": (
        "gpuhook: {guard: {action: none, killAfter: ^0s}}",
        'error: gpuhook.guard.killAfter: must be 1s or longer, found the text "0s"',
    ),
    "intervals the wrong way round": (
        "gpuhook: {guard: {longestInterval: ^500ms}}",
        (
            "error: gpuhook.guard.longestInterval: the shortest interval, 1s, is longer "
            "than the longest, 0.5s -> set both"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_error_in_a_limit_has_place_and_requirement(case: str) -> None:
    text, place = marked(WRONG[case][0])
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {WRONG[case][1]}"]
    assert reading.configuration is None
