# SPDX-License-Identifier: Apache-2.0
"""What commands print about bad input: wrong usage, invalid values, missing or broken files."""

from __future__ import annotations

from functools import partial

from tests.record.box import Box
from tests.record.case import Case
from tests.record.groups.documents import words
from tests.record.groups.help_texts import COMMANDS

SUBCOMMANDS = {
    "cdi": ("compile", "list", "resolve", "show", "transform driver", "transform root", "validate"),
    "config": ("compile", "default", "from-clusterpolicy", "import", "path", "show", "validate"),
    "configure": ("containerd", "crio", "docker", "podman", "show", "undo", "users"),
    "health": ("clear", "show"),
    "limits": ("clear", "set", "show"),
    "system": ("create-dev-char-symlinks", "create-device-nodes", "load-kernel-modules"),
}
# The command lines of a case, by its name. NO is a container that does not exist.
NO = "no-such-container"
CALLS: dict[str, tuple[str, ...]] = {
    "no-command": ("nothing", "exlpain", "--nothing", "ps --nothing", "-q", "--debug"),
    "log-format": ("--log-format xml ps", "--log-format json ps --recorded"),
    "attach": (
        f"attach {NO} --device 0",
        f"attach {NO}",
        "attach",
        "attach 999999 --device 0",
        f"attach {NO} --device 0 --memory-limit x",
        f"attach {NO} --device 0 --memory-limit -1",
        f"attach {NO} --device 0 --state-root /nowhere",
        f"attach {NO} --device 0 -o x",
    ),
    "detach": (
        f"detach {NO} --device 0",
        f"detach {NO}",
        "detach",
        f"detach {NO} --device 0 --force",
    ),
    "repair": (
        f"repair {NO}",
        "repair",
        "repair --all",
        f"repair {NO} --all",
        "repair --all -o json",
    ),
    "inspect": (f"inspect {NO}", "inspect", f"inspect {NO} -o json", "inspect 1"),
    "compare": (
        f"compare {NO}",
        "compare",
        "compare --all",
        f"compare {NO} --all",
        "compare --summary",
        "compare --all --interval 0",
        f"compare {NO} -o json",
    ),
    "limits": (
        f"limits set {NO} --limit 4Gi",
        f"limits set {NO}",
        f"limits set {NO} --limit x",
        f"limits set {NO} --limit 1 --request 2",
        f"limits clear {NO}",
        "limits clear",
        "limits clear --all",
        f"limits show {NO}",
    ),
    "explain": (
        f"explain {NO}",
        "explain /",
        "explain --env A",
        "explain --annotation A",
        "explain GHX",
        "explain --env A=1 --inventory none.yaml",
        "explain --mount relative",
        "explain --env NVIDIA_VISIBLE_DEVICES=0 --plugin-config nowhere.yaml",
        "explain --env A=1 --dot --diff",
        "explain --env A=1 -o dot",
    ),
    "inventory": (
        "inventory --inventory nowhere",
        "inventory --inventory broken.yaml",
        "inventory --inventory list.yaml",
        "inventory --inventory empty.yaml",
        "inventory --inventory binary",
        "inventory --host-root /nowhere",
        "inventory --driver-root /nowhere",
        "inventory --nvml-library /nowhere {node}",
        "inventory --nvml-library text.txt {node}",
        "inventory --inventory t4 --driver-root /x",
    ),
    "generate-cdi": (
        "generate-cdi --inventory nowhere",
        "generate-cdi --inventory broken.yaml",
        "generate-cdi --inventory t4 --output /nowhere/x/y.yaml",
        "generate-cdi --inventory t4 --output text.txt/y.yaml",
        "generate-cdi --inventory t4 --format x",
        "generate-cdi --inventory t4 --vendor a/b",
        "generate-cdi --inventory t4 --vendor intel",
        "generate-cdi --inventory t4 --class ''",
        "generate-cdi --inventory t4 --hook-path relative",
        "generate-cdi --inventory t4 --device-name-strategy x",
        "generate-cdi --csv-file nowhere",
        "generate-cdi --inventory t4 --files-dir /nowhere",
        "generate-cdi --mode proc --inventory t4",
        "generate-cdi --inventory t4 --device-id 0,x",
        "generate-cdi --driver-root /nowhere",
    ),
    "cdi": (
        "cdi compile nowhere.yaml",
        "cdi compile broken.yaml",
        "cdi list --spec-dir text.txt",
        "cdi validate nowhere.yaml",
        "cdi validate broken.yaml",
        "cdi validate list.yaml -o json",
        "cdi validate empty.yaml",
        "cdi validate binary",
        "cdi validate /nowhere",
        "cdi resolve x",
        "cdi resolve a/b=c",
        "cdi resolve nvidia.com/gpu=0 --oci broken.yaml",
        "cdi show a/b=c",
        "cdi transform root --from /a",
        "cdi transform root --from a --to b",
        "cdi transform root --from /a --to /b --input broken.yaml",
        "cdi transform root --from /a --to /b --input list.yaml",
        "cdi transform driver --input cdi/nvidia.yaml",
        "cdi transform x",
    ),
    "config": (
        "config validate broken.yaml",
        "config validate binary",
        "config validate",
        "config import nowhere",
        "config import binary",
        "config import text.txt --output /nowhere/x",
        "config from-clusterpolicy nowhere",
        "config from-clusterpolicy list.yaml",
        "config compile nowhere.yaml",
        "config compile broken.yaml",
        "config show extra",
        "config nothing",
    ),
    "configure": (
        "configure x",
        "configure docker --route x",
        "configure docker --restart x",
        "configure docker --host-root /nowhere",
        "configure undo",
        "configure undo x",
        "configure docker --runtime-path relative --dry-run --host-root /mnt/case",
        "configure podman --enable-cdi",
        "configure crio --enable-cri",
    ),
    "install": (
        "install --host-root /nowhere",
        "install --host-root /mnt/case --engine x",
        "install --host-root /mnt/case --tree /nowhere --engine none",
        "install --host-root /mnt/case --undo-on-exit",
        "uninstall --host-root /nowhere",
        "uninstall --install-dir relative --host-root /mnt/case",
        "install --host-root /mnt/case --engine none --driver-root relative",
    ),
    "labels": (
        "labels --inventory nowhere --oneshot",
        "labels --inventory t4 --mig-strategy x --oneshot",
        "labels --inventory t4 --oneshot --config-file nowhere.yaml",
        "labels --inventory t4 --oneshot --config-file broken.yaml",
        "labels --inventory t4 --oneshot --output-file /nowhere/x/y",
        "labels --inventory t4 --oneshot --sleep-interval x",
    ),
    "device-plugin": (
        "device-plugin --print-config --config-file nowhere.yaml",
        "device-plugin --validate",
        "device-plugin --print-config --config-file broken.yaml",
        "device-plugin --print-config --device-list-strategy x",
        "device-plugin --print-config --device-id-strategy x",
        "device-plugin --print-config --pass-device-specs x",
        "device-plugin --print-config --memory-reserve x",
        "device-plugin --print-config --guard-action x",
        "device-plugin --validate binary",
        "device-plugin --print-config --metrics-address x:y:z",
        "device-plugin --print-config --health-poll-interval -5",
    ),
    "doctor": (
        "doctor --root /nowhere",
        "doctor --root text.txt",
        "doctor --from text.txt",
        "doctor --from binary",
        "doctor --checks nothing.here --root /mnt/node/h100",
        "doctor --list x",
        "doctor --from text.txt --root /",
        "doctor --root /mnt/node/h100 --fix --dry-run -o json",
    ),
    "support-bundle": (
        "support-bundle --root /nowhere",
        "support-bundle --root /mnt/node/h100 -f /nowhere/x/y",
        "support-bundle --root /mnt/node/h100 -f /mnt/case",
        "support-bundle -o x",
    ),
    "map": (
        "map --inventory nowhere",
        "map --inventory t4 --width x",
        "map --inventory t4 --svg /nowhere/x",
        "map --inventory t4 --svg - --html -",
        "map --inventory t4 --interval 0",
    ),
    "ps": ("ps -o x", "ps extra", "ps --interval 0", "ps --recorded --state-root /nowhere"),
    "system": (
        "system create-device-nodes --driver-root /nowhere --dry-run",
        "system x",
        "system",
        "system create-dev-char-symlinks --dev-char-path relative --dry-run {node}",
        "system load-kernel-modules --module x --dry-run --host-root /mnt/node/h100",
    ),
    "health": ("health clear", "health clear GPU-x", "health show -o x", "health x"),
    "refresh": ("refresh -o x", "refresh extra", "refresh --nothing"),
    "completion": ("completion", "completion x"),
}
VARIABLES = {
    "output": {"GPUHOOK_PS_OUTPUT": "x"},
    "settings": {"GPUHOOK_CONFIG": "/nowhere/config.yaml"},
    "settings-directory": {"GPUHOOK_CONFIG": "/mnt/case"},
    "settings-value": {"GPUHOOK_CDI_ON_STALE": "x"},
    "state-missing": {"GPUHOOK_STATE_DIR": "/nowhere"},
    "state-file": {"GPUHOOK_STATE_DIR": "/mnt/case/text.txt"},
    "driver-root": {"GPUHOOK_DRIVER_ROOT": "/nowhere"},
}


def cases() -> list[Case]:
    """Return all cases."""
    made = [Case("errors", f"usage-{name}", "h100", partial(_usage, name)) for name in COMMANDS]
    made += [
        Case("errors", f"input-{name}", "h100", partial(_calls, calls, {}))
        for name, calls in CALLS.items()
    ]
    calls = ("ps --recorded", "config show", "cdi list", "limits show", "inventory --inventory t4")
    made += [
        Case("errors", f"variable-{name}", "h100", partial(_calls, calls, env))
        for name, env in VARIABLES.items()
    ]
    return made


def _usage(name: str, box: Box) -> None:
    for below in SUBCOMMANDS.get(name, ("",)):
        call = f"{name} {below}".split()
        box.gpuhook(*call, "--no-such-option")
        box.gpuhook(*call, "--output")
        box.gpuhook(*call, "one", "two", "--no-such-option", "-o", "what")
        if name in SUBCOMMANDS:
            box.gpuhook(name)


def _calls(calls: tuple[str, ...], env: dict[str, str], box: Box) -> None:
    box.write("broken.yaml", "a: [\n")
    box.write("list.yaml", "- a\n")
    box.write("empty.yaml", "")
    box.write("text.txt", "hello\n")
    box.write("binary", b"\x00\xff\xfe" * 20)
    for call in calls:
        box.gpuhook(*words(box, call), **env)
