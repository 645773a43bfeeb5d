# SPDX-License-Identifier: Apache-2.0
"""What each command does in a sentence, the first of its own help: no command is imported for it.

`gpuhook --help` and shells that complete a command show them. tests/unit/cli/test_cli.py holds both
to be alike.
"""

from __future__ import annotations

LINES = {
    "attach": "Give a running CONTAINER a GPU: nodes, device rules, driver files, loader cache.",
    "cdi": "List, show, check and transform CDI specs, of any vendor.",
    "compare": (
        "Compare what a running CONTAINER got from NVIDIA's stack, or anyone, with gpuhook's way."
    ),
    "completion": "Print the completion script of SHELL.",
    "config": "Show, check and take over the settings of this node.",
    "configure": "Register gpuhook with a container engine, show it, and take it back.",
    "detach": "Take a GPU away from a running CONTAINER (as in `gpuhook attach --help`).",
    "device-plugin": "Offer the GPUs of this node to its kubelet.",
    "doctor": (
        "Look for what keeps containers from their GPUs: each fault, its meaning, what mends it."
    ),
    "explain": "Tell what a container asks for, what it would get, and why, step by step.",
    "generate-cdi": "Describe a node's GPUs and driver as a CDI spec.",
    "health": "List the GPUs that are held for unhealthy, and clear them.",
    "inspect": (
        "Show what a running CONTAINER has: nodes, mounts, libraries, memory limits, variables."
    ),
    "install": "Put gpuhook on a host out of a container, and configure its engine.",
    "inventory": "Show the driver, the GPUs and the MIG instances of a node, and dump all of it.",
    "labels": "Print a node's feature labels, or keep them in NFD's file.",
    "limits": "Limit the GPU memory of running containers, and tell who has which limit.",
    "map": "Draw the GPUs of this node: each a bar of its memory, cut into those who have a part.",
    "ps": "List who uses the GPUs: containers, their memory of each GPU, and how busy they are.",
    "refresh": "Write the CDI specs of this node again where they describe another state of it.",
    "repair": (
        "Put back what a running CONTAINER has lost of the GPUs that it was granted, and no more."
    ),
    "support-bundle": (
        "Collect what somebody needs to find out what is wrong with this node, in one file."
    ),
    "system": (
        "Make this node ready for its GPUs: kernel modules, device nodes, links of /dev/char."
    ),
    "uninstall": (
        "Take gpuhook away from a host: what `gpuhook install` has put there and configured."
    ),
}
