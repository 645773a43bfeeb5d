# SPDX-License-Identifier: Apache-2.0
"""Limits of memory, memory units, the guard and interposers, as the device plugin is told them."""

from __future__ import annotations

import json
import re
import textwrap

import jsonschema
import pytest
import yaml

from gpuhook.kubernetes.config import build as config_build
from gpuhook.kubernetes.config import keys as config_keys
from gpuhook.kubernetes.config import schema as config_schema
from gpuhook.kubernetes.config.configuration import (
    Configuration,
    Guard,
    Interposer,
    InterposerMount,
    SharedResource,
    Sharing,
)
from gpuhook.kubernetes.config.reader import Override, read
from tests.unit.test_plugin_config import good, lines, one, parsed, sharing

GIB, MIB = 1 << 30, 1 << 20
GPU = "nvidia.com/gpu"
MPS_ROOT = "flags: {mpsRoot: /mps}\n"

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
    validator = jsonschema.Draft202012Validator(json.loads(config_schema.text()))
    return bool(validator.is_valid(yaml.safe_load(text)))


def test_every_key_of_a_limit_reaches_the_configuration() -> None:
    """A file with all keys says what it says, to the reader and to an editor."""
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
            env=(
                ("LD_PRELOAD", "/usr/lib/hami/libvgpu.so"),
                ("HAMI_CACHE", "/run/hami/{uuid}?a=b"),
            ),
            mounts=(
                InterposerMount("/opt/hami/{index}", "/usr/lib/hami"),
                InterposerMount("/run/hami", "/run/hami", read_only=False),
            ),
            device_nodes=("/dev/fuse",),
        ),
    )
    assert valid(WHOLE)


UNITS = "sharing: {{memoryUnits: {{resources: [{{name: gpu, {}}}]}}}}\n"


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
def test_memory_units(text: str, resource: SharedResource) -> None:
    """Units of memory are GiB of nvidia.com/gpumem, packed, unless a file says otherwise."""
    found = good(UNITS.format(text)).sharing
    assert found == Sharing(strategy="memory-units", resources=(resource,), policy="packed")
    assert valid(UNITS.format(text))


def test_memory_units_are_spread_where_asked() -> None:
    """The policy is one of the strategy, not of a resource."""
    text = "sharing: {memoryUnits: {policy: spread, resources: [{name: gpu}]}}"
    assert good(text).sharing.policy == "spread"


def test_clients_of_mps() -> None:
    """MPS has limits, too, and a part of the threads."""
    text = "name: gpu, replicas: {memory: 6Gi}, memory: 5Gi, activeThreadPercentage: 30, hints: jax"
    made = good(MPS_ROOT + sharing(f"resources:\n- {{{text}}}\n", "mps"))
    assert made.sharing.resources == (
        SharedResource(
            GPU,
            replica_memory=6 * GIB,
            memory=5 * GIB,
            active_thread_percentage=30,
            hints=("jax",),
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        UNITS.format("unit: MiB, hints: [pytorch, jax]"),
        UNITS.format("unit: 3Mi").replace("resources", "policy: spread, resources"),
        MPS_ROOT + sharing("resources: [{name: gpu, replicas: 2, memory: none}]", "mps"),
    ],
)
def test_what_is_printed_says_the_same(text: str) -> None:
    """A printed configuration is read back as it was, and an editor takes it."""
    made = good(text)
    document = config_build.document(made)
    assert good(json.dumps(document)) == made
    assert valid(json.dumps(document))


ENTRY = "sharing.timeSlicing.resources[0]"
CONTEXT = "a CUDA context with its libraries takes as much by itself"


def marked(text: str) -> tuple[str, str]:
    """Return a text without its ^, and the place of what stands behind that."""
    before, mark, after = text.partition("^")
    assert mark
    line = before.rpartition("\n")[2]
    return before + after, f"{before.count(chr(10)) + 1}:{len(line) + 1}"


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
            f'error: {ENTRY}.memory: must be 1Ti or less, found the text "2Ti" -> no GPU has as '
            "much memory"
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
            f"error: {ENTRY}.memory: a limit of 6Gi for replicas of 4Gi: together they may be "
            "more than a device has -> set `oversubscribe: true` if that is meant, or leave "
            "`memory` "
            "away"
        ),
    ),
    "limits above all devices": (
        one("name: gpu, replicas: 48, memory: ^32Gi"),
        (
            f"error: {ENTRY}.memory: 48 limits of 32Gi are 1536Gi together, more than any GPU has "
            "-> set `oversubscribe: true` if that is meant, or `memory: fair`"
        ),
    ),
    "exclusive-process with replicas": (
        one("name: gpu, replicas: 2, computeMode: ^exclusive-process"),
        (
            f"error: {ENTRY}.computeMode: exclusive-process does not go with 2 replicas: the "
            "second process gets no context -> leave it away, or set `replicas: 1`"
        ),
    ),
    "exclusive-process with as many as fit": (
        one("name: gpu, replicas: {memory: 4Gi}, computeMode: ^exclusive-process"),
        (
            f"error: {ENTRY}.computeMode: exclusive-process does not go with several containers "
            "on a device: the second process gets no context -> leave it away, or set `replicas: 1`"
        ),
    ),
    "exclusive-process with units": (
        UNITS.format("computeMode: ^exclusive-process"),
        (
            "error: sharing.memoryUnits.resources[0].computeMode: exclusive-process does not go "
            "with several containers on a device: the second process gets no context -> leave "
            "it away"
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
        MPS_ROOT
        + sharing("resources:\n- {name: gpu, replicas: 2, activeThreadPercentage: ^101}", "mps"),
        ("error: sharing.mps.resources[0].activeThreadPercentage: must be 100 or less, found 101"),
    ),
    "a unit that is too small": (
        UNITS.format("unit: ^1Ki"),
        (
            "error: sharing.memoryUnits.resources[0].unit: must be 1Mi or more, found the text "
            '"1Ki" -> memory is counted in MiB'
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
            "error: sharing.memoryUnits.resources[1]: would be called nvidia.com/gpumem, as "
            "sharing.memoryUnits.resources[0] is: a name is one resource's"
        ),
    ),
    "units and time slices": (
        one("name: gpu, replicas: 2") + "  memoryUnits: ^{resources: [{name: gpu}]}",
        (
            "error: sharing.memoryUnits: timeSlicing and memoryUnits are both given, and a "
            "device is shared in one way only -> remove one of the two"
        ),
    ),
    "all strategies": (
        MPS_ROOT
        + one("name: gpu, replicas: 2")
        + "  mps: {resources: [{name: gpu, replicas: 2}]}\n"
        + "  memoryUnits: ^{resources: [{name: gpu}]}",
        (
            "error: sharing.memoryUnits: timeSlicing, mps and memoryUnits are all given, and a "
            "device is shared in one way only -> keep one of them"
        ),
    ),
    "a reserve above any device": (
        "gpuhook: {memoryReserve: ^4Ti}",
        (
            'error: gpuhook.memoryReserve: must be 1Ti or less, found the text "4Ti" -> no GPU '
            "has as much memory"
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
            "error: gpuhook.guard.grace: must be 0, or 1s or longer, found 10 -> a number without "
            "a unit is nanoseconds: write 10s"
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
            "error: sharing.timeSlicing.resources[0].replicas: must be an integer, found the text "
            '"4Gi" -> for as many replicas of that size as fit: `replicas: {memory: 4Gi}`'
        ),
    ),
    "replicas of units": (
        UNITS.format("^replicas: 4"),
        (
            "error: sharing.memoryUnits.resources[0].replicas: does not go with memoryUnits: units "
            "are their own limit -> leave it out"
        ),
    ),
    "units of what pods ask for": (
        "sharing: {memoryUnits: {resources: [{name: ^nvidia.com/gpumem}]}}",
        (
            "error: sharing.memoryUnits.resources[0].name: nvidia.com/gpumem is no resource of "
            "GPUs: `name` is what is shared, and what pods ask for is `rename` -> write `name: "
            "nvidia.com/gpu`, `rename: nvidia.com/gpumem`"
        ),
    ),
    "no time to end": (
        "gpuhook: {guard: {action: none, killAfter: ^0s}}",
        'error: gpuhook.guard.killAfter: must be 1s or longer, found the text "0s"',
    ),
    "intervals the wrong way round": (
        "gpuhook: {guard: {longestInterval: ^500ms}}",
        (
            "error: gpuhook.guard.longestInterval: the shortest interval, 1s, is longer than the "
            "longest, 0.5s -> set both; the longest must not be below the shortest"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_limit_is_told_with_its_place(case: str) -> None:
    """Each wrong value is refused with the place, the key, what it must be and what was found."""
    text, place = marked(WRONG[case][0])
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {WRONG[case][1]}"]
    assert reading.configuration is None


def interposer(edits: str, more: str = "") -> str:
    """Return a file with one interposer that has the keys of `edits`, and a resource that has "
    "it."""
    entry = sharing(f"resources:\n- {{name: gpu, replicas: 2, interposer: x{more}}}\n")
    return f"gpuhook:\n  interposers:\n  - name: x\n    containerEdits: {{{edits}}}\n{entry}"


EDITS = "gpuhook.interposers[0].containerEdits"
PRELOADED = "mounts: [{hostPath: /x.so, containerPath: /lib/x.so}], env: [^LD_PRELOAD=%s]"

# Of an interposer's edits.
REFUSED = {
    "hooks": (
        "env: [A=1], ^hooks: [{hookName: prestart, path: /x}]",
        (
            f"error: {EDITS}.hooks: "
            "cannot be served: an answer to the kubelet carries no hooks -> put a CDI spec with "
            "the "
            "hooks on the node instead"
        ),
    ),
    "groups": (
        "env: [A=1], ^additionalGids: [1]",
        (
            f"error: {EDITS}.additionalGids: cannot be "
            "served: an answer to the kubelet carries no groups -> set supplementalGroups in "
            "the pod"
        ),
    ),
    "a mapping of variables": (
        "env: ^{A: 1}",
        (
            f"error: {EDITS}.env: must be a list of "
            "NAME=value, found a mapping -> write each as an entry: - NAME=value"
        ),
    ),
    "a variable without a value": (
        "env: [A=1, ^B]",
        f'error: {EDITS}.env[1]: must be NAME=value, found the text "B"',
    ),
    "a variable twice": ("env: [A=1, ^A=2]", f"error: {EDITS}.env[1]: A is there twice"),
    "several lines": (
        'env: [^"A=1\\n2"]',
        f"error: {EDITS}.env[0]: the value of A must be on one line, and printable",
    ),
    "the devices": (
        "env: [^NVIDIA_VISIBLE_DEVICES=all]",
        (
            f"error: {EDITS}.env[0]: "
            "NVIDIA_VISIBLE_DEVICES cannot be set by an interposer: it says what a container is "
            "granted "
            "-> leave it away: the plugin sets it where it is needed"
        ),
    ),
    "a variable of ours": (
        "env: [^GPUHOOK_X=1]",
        (
            f"error: {EDITS}.env[0]: GPUHOOK_X cannot be "
            "set by an interposer: it says what a container is granted -> leave it away: the "
            "plugin "
            "sets it where it is needed"
        ),
    ),
    "a placeholder mistyped": (
        "env: [^'A={limitMB}']",
        (
            f"error: {EDITS}.env[0]: {{limitMB}} "
            "is no placeholder here -> did you mean {limitMiB}?"
        ),
    ),
    "a placeholder that is none": (
        "env: [^'A=${HOME}']",
        (
            f"error: {EDITS}.env[0]: {{HOME}} "
            "is no placeholder here -> there are {uuid}, {index}, {limitMiB}, {limitBytes}, "
            "{replicas}"
        ),
    ),
    "a placeholder in the container": (
        "mounts: [{hostPath: /x, containerPath: ^'/{uuid}'}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: has a placeholder, found the text "
            '"/{uuid}" -> placeholders stand in the values of `env` and in `hostPath` only'
        ),
    ),
    "a placeholder in a node": (
        "deviceNodes: [{path: ^'/dev/{index}'}]",
        (
            f"error: {EDITS}.deviceNodes[0].path: {{index}} is no placeholder here -> "
            "placeholders stand in the values of `env` and in `hostPath` only"
        ),
    ),
    "a relative path": (
        "mounts: [{hostPath: ^x, containerPath: /x}]",
        f'error: {EDITS}.mounts[0].hostPath: must be an absolute path, found the text "x"',
    ),
    "a path that leads up": (
        "mounts: [{hostPath: /x, containerPath: ^/x/../y}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: must have no .. in it, found the text "
            '"/x/../y"'
        ),
    ),
    "the root directory": (
        "mounts: [{hostPath: /x, containerPath: ^//.}]",
        f"error: {EDITS}.mounts[0].containerPath: must be more than the root directory",
    ),
    "a mount without its target": (
        "mounts: [^{hostPath: /x}]",
        f"error: {EDITS}.mounts[0].containerPath: is missing",
    ),
    "one target twice": (
        "mounts: [{hostPath: /x, containerPath: /x}, {hostPath: /y, containerPath: ^/x/}]",
        f"error: {EDITS}.mounts[1].containerPath: duplicate: /x is mounted already",
    ),
    "a mount that is a grant": (
        "mounts: [{hostPath: /x, containerPath: ^'/var/run/gpuhook//memory/GPU-1,hard=1,soft=1'}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: is below /var/run/gpuhook/memory, where "
            "mounts say what a container is granted -> mount it elsewhere"
        ),
    ),
    "a mount that is a device": (
        "mounts: [{hostPath: /x, containerPath: ^/var/run/nvidia-container-devices/all}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: is below /var/run/nvidia-container-devices, "
            "where mounts say what a container is granted -> mount it elsewhere"
        ),
    ),
    "an option that cannot be carried": (
        "mounts: [{hostPath: /x, containerPath: /x, options: [ro, ^nosuid]}]",
        (
            f"error: {EDITS}.mounts[0].options[1]: must be one of ro, rw, bind, "
            'rbind, private, rprivate, found the text "nosuid"'
        ),
    ),
    "ro and rw": (
        "mounts: [{hostPath: /x, containerPath: /x, options: ^[ro, rw]}]",
        f"error: {EDITS}.mounts[0].options: has ro and rw -> keep one of them",
    ),
    "a node of NVIDIA's": (
        "deviceNodes: [{path: ^/dev/nvidia1}]",
        (
            f"error: "
            f"{EDITS}.deviceNodes[0].path: is a device of NVIDIA's driver, found the text "
            '"/dev/nvidia1" -> containers get those with the resource they ask for'
        ),
    ),
    "a node that is none": (
        "deviceNodes: [{path: ^/etc/passwd}]",
        (
            f"error: "
            f'{EDITS}.deviceNodes[0].path: must be a path below /dev, found the text "/etc/passwd"'
        ),
    ),
    "one node twice": (
        "deviceNodes: [{path: /dev/fuse}, {path: ^/dev//fuse}]",
        f"error: {EDITS}.deviceNodes[1].path: duplicate: /dev/fuse is there already",
    ),
    "a node of two paths": (
        "deviceNodes: [{path: /dev/a, ^hostPath: /dev/b}]",
        (
            f"error: "
            f"{EDITS}.deviceNodes[0].hostPath: cannot be served: a device node has one path on "
            "both "
            "sides -> give the path of the host as `path`"
        ),
    ),
    "a library that no mount brings": (
        PRELOADED % "/lib/y.so",
        (
            f"error: {EDITS}.env[0]: "
            "LD_PRELOAD has /lib/y.so, and no mount of the interposer brings it -> add a mount "
            "with "
            "`containerPath: /lib/y.so`"
        ),
    ),
    "a library by its name": (
        PRELOADED % "/lib/x.so:y.so",
        (
            f"error: "
            f"{EDITS}.env[0]: LD_PRELOAD has y.so, which is no absolute path: which file that is "
            "depends on the image -> give the containerPath of the mount that brings it"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_interposer_cannot_do(case: str) -> None:
    """What containers cannot get, or should not, is refused with its place and a way out."""
    edits, wanted = REFUSED[case]
    text, place = marked(interposer(edits))
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {wanted}"]
    assert reading.configuration is None


@pytest.mark.parametrize(
    "preload", ["/lib/x.so", "/lib/x.so:/lib/x.so", "'LD_PRELOAD=/lib/x.so /lib/x.so'"]
)
def test_libraries_that_a_mount_brings(preload: str) -> None:
    """A library is mounted itself, or with its directory; several have colons or spaces between."""
    item = preload if "=" in preload else f"LD_PRELOAD={preload}"
    mounts = "mounts: [{hostPath: /x, containerPath: %s}], env: [%s]"
    for place in ("/lib/x.so", "/lib"):
        good(interposer(mounts % (place, item)))


def test_an_interposer_is_called_by_its_name() -> None:
    """A name that there is none of is an error with the nearest one, and so is one twice."""
    mistyped = interposer("env: [A=1]").replace("name: x", "name: nvshare")
    for name, hint in (("nv-share", "did you mean nvshare?"), ("hami", "there are nvshare")):
        text, place = marked(mistyped.replace("interposer: x", f"interposer: ^{name}"))
        assert lines(parsed(text)) == [
            (
                "3:11: warning: gpuhook.interposers[0].name: has no effect without a resource that "
                "says `interposer: nvshare`"
            ),
            f"{place}: error: {ENTRY}.interposer: {name} is none of gpuhook.interposers -> {hint}",
        ]
    text, place = marked(one("name: gpu, replicas: 2, interposer: ^nvshare"))
    assert lines(parsed(text)) == [
        (
            f"{place}: error: {ENTRY}.interposer: nvshare is none of gpuhook.interposers -> add "
            "it to "
            "gpuhook.interposers"
        )
    ]
    twice = interposer("env: [A=1]").replace(
        "sharing:", "  - {name: ^x, containerEdits: {env: [A=1]}}\nsharing:"
    )
    text, place = marked(twice)
    assert lines(parsed(text)) == [
        f"{place}: error: gpuhook.interposers[1].name: duplicate: another is called x, too"
    ]


@pytest.mark.parametrize("edits", ["{}", "{env: []}", "{mounts: [], deviceNodes: []}", ""])
def test_an_interposer_gives_something(edits: str) -> None:
    """Edits of nothing are a mistake, however they are written."""
    (found,) = parsed(interposer("").replace("{}", edits)).findings
    assert (found.line, found.path, found.message) == (4, EDITS, "gives containers nothing")


def test_a_wrong_interposer_is_one_finding() -> None:
    """Who mistypes in an interposer is not told that it is not there, too."""
    assert len(lines(parsed(interposer("env: [A]")))) == 1


def test_an_interposer_of_a_limit_needs_one() -> None:
    """What is computed from a limit is refused where there is none."""
    edits = "env: ['CUDA_DEVICE_MEMORY_LIMIT={limitMiB}m']"
    text, place = marked(interposer(edits).replace("interposer: ", "interposer: ^"))
    assert lines(parsed(text)) == [
        (
            f"{place}: error: {ENTRY}.interposer: x has {{limitMiB}}, and nvidia.com/gpu has no "
            "limit of "
            "memory here -> set `memory: fair`, or an amount"
        )
    ]
    good(interposer(edits, more=", memory: fair"))


FAIR = one("name: gpu, replicas: 2, memory: fair")
TOLD = [
    (
        "gpuhook: {guard: {action: ^kill}}\n"
        + MPS_ROOT
        + sharing("resources:\n- {name: gpu, replicas: 2}", "mps"),
        (
            "warning: gpuhook.guard.action: has no effect with mps: its server holds its clients, "
            "and no guard watches them -> leave it away, or share by timeSlicing"
        ),
    ),
    (
        one("name: gpu, replicas: 2, ^memory: "),
        (
            "warning: sharing.timeSlicing.resources[0].memory: is empty, which is as if it were "
            "not there"
        ),
    ),
    (
        one("name: gpu, replicas: {memory: 4Gi}, memory: ^fair"),
        (
            "warning: sharing.timeSlicing.resources[0].memory: fair beside `replicas: {memory: "
            "4Gi}`: a replica may have its part of the device, which is more than 4Gi where that "
            "does not divide it evenly -> leave `memory` away for 4Gi each, or give a number of "
            "replicas for fair parts"
        ),
    ),
    (
        one("name: gpu, replicas: 2, ^memroy: fair"),
        (
            "warning: sharing.timeSlicing.resources[0].memroy: unknown key, ignored -> did you "
            "mean sharing.timeSlicing.resources[0].memory? (--strict-config refuses unknown keys)"
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
            f"warning: {ENTRY}.oversubscribe: has no effect without an amount in `memory`: fair "
            "shares never add up to more than a device has -> set `memory: 8Gi`, or leave it away"
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
            "warning: gpuhook.memoryReserve: has no effect without a limit of memory in `sharing`"
            " -> set `memory: fair` for a resource that is shared"
        ),
    ),
    (
        "gpuhook: {memoryReserve: ^20Gi}\n" + FAIR,
        (
            "warning: gpuhook.memoryReserve: 20Gi of each device are nobody's: replicas and units "
            "get that much less -> the default is 256Mi"
        ),
    ),
    (
        "gpuhook: {guard: {action: ^kill}}",
        (
            "warning: gpuhook.guard.action: has no effect without a limit of memory in `sharing` "
            "-> set `memory: fair` for a resource that is shared"
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
        MPS_ROOT + sharing("resources:\n- {name: gpu, replicas: 2, ^timeSlice: short}", "mps"),
        (
            "warning: sharing.mps.resources[0].timeSlice: unknown key, ignored -> did you mean "
            "sharing.timeSlicing.resources[].timeSlice?"
        ),
    ),
]


@pytest.mark.parametrize(("text", "warning"), TOLD)
def test_what_has_no_effect_is_told(text: str, warning: str) -> None:
    """What does nothing is a warning, and the file is good."""
    text, place = marked(text)
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {warning}"]
    assert reading.configuration is not None


@pytest.mark.parametrize(
    "text",
    [
        MPS_ROOT + sharing("resources:\n- {name: gpu, replicas: 2, hints: jax}", "mps"),
        UNITS.format("hints: jax") + "gpuhook: {memoryReserve: 1Gi, guard: {action: kill}}",
        one("name: gpu, replicas: {memory: 4Gi}, hints: [jax]"),
        one("name: gpu, replicas: {memory: 4Gi}, memory: 6Gi, oversubscribe: true"),
        one("name: gpu, replicas: 2, hints: []"),
        one("name: gpu, replicas: 48, memory: 32Gi, oversubscribe: true"),
    ],
)
def test_limits_that_the_strategy_has_by_itself(text: str) -> None:
    """MPS, memory units and derived replicas limit memory without `memory`."""
    good(text)


def test_the_guard_of_the_command_line() -> None:
    """An option counts more than the file, and its contradictions are told as its own."""
    overrides = {"gpuhook.guard.shortestInterval": Override(20.0, "--guard-shortest-interval")}
    (line,) = lines(read(b"gpuhook: {guard: {longestInterval: 10s}}", "f", overrides))
    assert line.startswith("--guard-shortest-interval: error: gpuhook.guard.shortestInterval: ")


def test_many_entries_are_judged_as_well() -> None:
    """A file of contradictions stays bounded."""
    entry = "- {name: gpu, replicas: 2, interposer: x, computeMode: exclusive-process}\n"
    found = parsed(sharing("resources:\n" + entry * 256)).findings
    assert len(found) == 256 * 3 - 1
    names = "".join(f"  - {{name: x, containerEdits: {{env: [A={n}]}}}}\n" for n in range(256))
    assert len(parsed("gpuhook:\n  interposers:\n" + textwrap.indent(names, "")).findings) == 511


def test_findings_can_be_printed() -> None:
    """Whatever stands in paths and variables, it is told in words that can be printed."""
    for odd in ("\\u2028", "\\ud800", "\\x9b", "é"):
        for edits in (
            f'env: ["LD_PRELOAD=/a{odd}"]',
            f'env: ["LD_PRELOAD={odd}"]',
            f'env: ["{odd}=1", "A={{{odd}}}"]',
            f'mounts: [{{hostPath: "/{odd}", containerPath: "/{{{odd}}}"}}]',
            (
                f'mounts: [{{hostPath: /x, containerPath: "/{odd}"}}, '
                f'{{hostPath: /x, containerPath: "/{odd}"}}]'
            ),
            f'deviceNodes: [{{path: "/dev/{odd}/.."}}]',
        ):
            found = lines(parsed(interposer(edits)))
            assert found
            assert all(line.isprintable() for line in found)
            assert all(re.match(r"\d+:\d+: ", line) for line in found)


def test_name_of_units_may_be_one_of_the_resources() -> None:
    made = good(
        "resources: {gpus: [{pattern: '*', name: gpumem}]}\n"
        "sharing: {memoryUnits: {resources: [{name: gpumem}]}}"
    )
    assert made.sharing.resources[0].name == "nvidia.com/gpumem"


@pytest.mark.parametrize("prefix", ["/var/run", "/run"])
@pytest.mark.parametrize("place", ["memory", "devices"])
def test_interposer_mounts_nothing_where_mounts_are_grants(prefix: str, place: str) -> None:
    """/var/run is /run in most images."""
    path = {"memory": "gpuhook/memory", "devices": "nvidia-container-devices"}[place]
    text = f"mounts: [{{hostPath: /a, containerPath: {prefix}/{path}/x}}]"
    (line,) = lines(parsed(interposer(text)))
    assert f"is below {prefix}/{path}, where mounts say" in line


def test_override_of_a_key_of_the_file_is_told() -> None:
    """Whoever edits the file and sees no effect reads of both."""
    source = "the environment variable DEVICE_LIST_STRATEGY"
    path = "flags.plugin.deviceListStrategy"
    text = b"flags: {plugin: {deviceListStrategy: volume-mounts}}"
    (line,) = lines(read(text, "plugin.yaml", {path: Override(("envvar",), source)}))
    assert line == (
        f"1:38: warning: {path}: has no effect: {source} says something else, and counts more -> "
        "remove one of the two"
    )
    assert read(text, "f", {path: Override(("volume-mounts",), source)}).findings == ()


def test_defaults_in_the_help_are_the_defaults() -> None:
    own = Configuration().own
    seen = 0
    for path, key in config_keys.walk():
        if path.startswith(("gpuhook.guard.", "gpuhook.memoryReserve")):
            said = key.about.rpartition("Default: ")[2].removesuffix(".")
            holder = own.guard if "guard" in path else own
            assert config_keys.kind_of(path).of_text(said) == getattr(holder, key.field)
            seen += 1
    assert seen == 7
