# SPDX-License-Identifier: Apache-2.0
"""Interposers in the configuration of the device plugin, and the edits that they can make."""

from __future__ import annotations

import re

import pytest

from tests.unit.config_texts import ENTRY, good, lines, marked, one, parsed, sharing


def interposer(edits: str, more: str = "") -> str:
    """Return a file with one interposer with the keys `edits`, and a resource that names it."""
    entry = sharing(f"resources:\n- {{name: gpu, replicas: 2, interposer: x{more}}}\n")
    return f"gpuhook:\n  interposers:\n  - name: x\n    containerEdits: {{{edits}}}\n{entry}"


EDITS = "gpuhook.interposers[0].containerEdits"
PRELOADED = "mounts: [{hostPath: /x.so, containerPath: /lib/x.so}], env: [^LD_PRELOAD=%s]"

# Refused edits of an interposer.
REFUSED = {
    "hooks": (
        "env: [A=1], ^hooks: [{hookName: prestart, path: /x}]",
        (
            f"error: {EDITS}.hooks: is not supported: the "
            "kubelet's API has no field for hooks -> put a CDI spec with the hooks on "
            "the node instead"
        ),
    ),
    "groups": (
        "env: [A=1], ^additionalGids: [1]",
        (
            f"error: {EDITS}.additionalGids: is not "
            "supported: the kubelet's API has no field for groups -> set "
            "supplementalGroups in the pod"
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
    "a variable twice": ("env: [A=1, ^A=2]", (f"error: {EDITS}.env[1]: A is set twice")),
    "several lines": (
        'env: [^"A=1\\n2"]',
        f"error: {EDITS}.env[0]: the value of A must be on one line, and printable",
    ),
    "the devices": (
        "env: [^NVIDIA_VISIBLE_DEVICES=all]",
        (
            f"error: {EDITS}.env[0]: NVIDIA_VISIBLE_DEVICES "
            "cannot be set by an interposer: it grants devices or memory -> remove it: "
            "the plugin sets it itself"
        ),
    ),
    "AMD's devices": (
        "env: [^AMD_VISIBLE_DEVICES=all]",
        (
            f"error: {EDITS}.env[0]: AMD_VISIBLE_DEVICES "
            "cannot be set by an interposer: it grants devices or memory -> remove it: "
            "the plugin sets it itself"
        ),
    ),
    "a variable of ours": (
        "env: [^GPUHOOK_X=1]",
        (
            f"error: {EDITS}.env[0]: GPUHOOK_X cannot be "
            "set by an interposer: it grants devices or memory -> remove it: the plugin "
            "sets it itself"
        ),
    ),
    "a placeholder mistyped": (
        "env: [^'A={limitMB}']",
        (
            f"error: {EDITS}.env[0]: {{limitMB}} is not a "
            "placeholder here -> did you mean {limitMiB}?"
        ),
    ),
    "a placeholder that is none": (
        "env: [^'A=${HOME}']",
        (
            f"error: {EDITS}.env[0]: {{HOME}} is not a "
            "placeholder here -> the placeholders are {uuid}, {index}, {limitMiB}, "
            "{limitBytes}, {replicas}"
        ),
    ),
    "a placeholder in the container": (
        "mounts: [{hostPath: /x, containerPath: ^'/{uuid}'}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: has a "
            'placeholder, found the text "/{uuid}" -> placeholders work in the values of '
            "`env` and in `hostPath` only"
        ),
    ),
    "a placeholder in a node": (
        "deviceNodes: [{path: ^'/dev/{index}'}]",
        (
            f"error: {EDITS}.deviceNodes[0].path: {{index}} "
            "is not a placeholder here -> placeholders work in the values of `env` and "
            "in `hostPath` only"
        ),
    ),
    "a relative path": (
        "mounts: [{hostPath: ^x, containerPath: /x}]",
        f'error: {EDITS}.mounts[0].hostPath: must be an absolute path, found the text "x"',
    ),
    "a path that leads up": (
        "mounts: [{hostPath: /x, containerPath: ^/x/../y}]",
        (f'error: {EDITS}.mounts[0].containerPath: must not contain .., found the text "/x/../y"'),
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
        (f"error: {EDITS}.mounts[1].containerPath: duplicate: /x"),
    ),
    "a mount that is a grant": (
        "mounts: [{hostPath: /x, containerPath: ^'/var/run/gpuhook//memory/GPU-1,hard=1,soft=1'}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: is "
            "below /var/run/gpuhook/memory, where mounts grant devices or memory -> "
            "mount it elsewhere"
        ),
    ),
    "a mount that is a device": (
        "mounts: [{hostPath: /x, containerPath: ^/var/run/nvidia-container-devices/all}]",
        (
            f"error: {EDITS}.mounts[0].containerPath: is "
            "below /var/run/nvidia-container-devices, where mounts grant devices or "
            "memory -> mount it elsewhere"
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
            f"error: {EDITS}.deviceNodes[0].path: is a "
            'device of NVIDIA\'s driver, found the text "/dev/nvidia1" -> containers get '
            "it with the resource that they request"
        ),
    ),
    "AMD's node of all GPUs": (
        "deviceNodes: [{path: ^/dev/kfd}]",
        (
            f"error: {EDITS}.deviceNodes[0].path: is a "
            'device of AMD\'s driver, found the text "/dev/kfd" -> containers get '
            "it with the resource that they request"
        ),
    ),
    "a render node": (
        "deviceNodes: [{path: /dev/fuse}, {path: ^/dev//dri/renderD128}]",
        (
            f"error: {EDITS}.deviceNodes[1].path: is a "
            'device of AMD\'s driver, found the text "/dev/dri/renderD128" -> containers get '
            "it with the resource that they request"
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
        (f"error: {EDITS}.deviceNodes[1].path: duplicate: /dev/fuse"),
    ),
    "a node of two paths": (
        "deviceNodes: [{path: /dev/a, ^hostPath: /dev/b}]",
        (
            f"error: {EDITS}.deviceNodes[0].hostPath: is "
            "not supported: a device node has one path on both sides -> write the "
            "path on the host as `path`"
        ),
    ),
    "a library that no mount brings": (
        PRELOADED % "/lib/y.so",
        (
            f"error: {EDITS}.env[0]: LD_PRELOAD has "
            "/lib/y.so, and no mount of the interposer provides it -> add a mount with "
            "`containerPath: /lib/y.so`"
        ),
    ),
    "a library by its name": (
        PRELOADED % "/lib/x.so:y.so",
        (
            f"error: {EDITS}.env[0]: LD_PRELOAD has y.so, "
            "which is not an absolute path: which file it is depends on the image -> "
            "write the containerPath of its mount"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_edit_is_an_error_with_a_hint(case: str) -> None:
    edits, wanted = REFUSED[case]
    text, place = marked(interposer(edits))
    reading = parsed(text)
    assert lines(reading) == [f"{place}: {wanted}"]
    assert reading.configuration is None


@pytest.mark.parametrize(
    "preload", ["/lib/x.so", "/lib/x.so:/lib/x.so", "'LD_PRELOAD=/lib/x.so /lib/x.so'"]
)
def test_preloaded_library_of_a_mount_is_accepted(preload: str) -> None:
    """The mount has the library or its directory; colons or spaces separate several libraries."""
    item = preload if "=" in preload else f"LD_PRELOAD={preload}"
    mounts = "mounts: [{hostPath: /x, containerPath: %s}], env: [%s]"
    for place in ("/lib/x.so", "/lib"):
        good(interposer(mounts % (place, item)))


def test_unknown_and_duplicate_interposer_names_are_errors() -> None:
    """An unknown name has the nearest name as hint."""
    mistyped = interposer("env: [A=1]").replace("name: x", "name: nvshare")
    for name, hint in (
        ("nv-share", "did you mean nvshare?"),
        ("hami", ("known names are nvshare")),
    ):
        text, place = marked(mistyped.replace("interposer: x", f"interposer: ^{name}"))
        assert lines(parsed(text)) == [
            (
                "3:11: warning: gpuhook.interposers[0].name: has no effect without a "
                "resource with `interposer: nvshare`"
            ),
            f"{place}: error: {ENTRY}.interposer: {name} is not in gpuhook.interposers -> {hint}",
        ]
    text, place = marked(one("name: gpu, replicas: 2, interposer: ^nvshare"))
    assert lines(parsed(text)) == [
        (
            f"{place}: error: {ENTRY}.interposer: nvshare is not in gpuhook.interposers -> add "
            "it to "
            "gpuhook.interposers"
        )
    ]
    twice = interposer("env: [A=1]").replace(
        "sharing:", "  - {name: ^x, containerEdits: {env: [A=1]}}\nsharing:"
    )
    text, place = marked(twice)
    assert lines(parsed(text)) == [
        f"{place}: error: gpuhook.interposers[1].name: duplicate: another entry has the name x"
    ]


@pytest.mark.parametrize("edits", ["{}", "{env: []}", "{mounts: [], deviceNodes: []}", ""])
def test_empty_edits_are_an_error(edits: str) -> None:
    (found,) = parsed(interposer("").replace("{}", edits)).findings
    assert (found.line, found.path, found.message) == (4, EDITS, "is empty")


def test_invalid_interposer_is_one_finding() -> None:
    """It is not reported as unknown, too."""
    assert len(lines(parsed(interposer("env: [A]")))) == 1


def test_placeholder_of_a_limit_needs_a_limit() -> None:
    edits = "env: ['CUDA_DEVICE_MEMORY_LIMIT={limitMiB}m']"
    text, place = marked(interposer(edits).replace("interposer: ", "interposer: ^"))
    assert lines(parsed(text)) == [
        (
            f"{place}: error: {ENTRY}.interposer: x has {{limitMiB}}, and nvidia.com/gpu has no "
            "memory limit here -> set `memory: fair`, or an amount"
        )
    ]
    good(interposer(edits, more=", memory: fair"))


def test_findings_are_printable() -> None:
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


@pytest.mark.parametrize("prefix", ["/var/run", "/run"])
@pytest.mark.parametrize("place", ["memory", "devices"])
def test_mount_at_the_path_of_grants_is_an_error(prefix: str, place: str) -> None:
    """/var/run is a link to /run in most images."""
    path = {"memory": "gpuhook/memory", "devices": "nvidia-container-devices"}[place]
    text = f"mounts: [{{hostPath: /a, containerPath: {prefix}/{path}/x}}]"
    (line,) = lines(parsed(interposer(text)))
    assert f"is below {prefix}/{path}, where mounts grant" in line
