# SPDX-License-Identifier: Apache-2.0
"""Which scenario runs a command line: for each page, patterns (fnmatch) of its lines.

A line is claimed by exactly one pattern, and each pattern claims a line. The scenarios are
test_checkout.py, test_cluster.py, test_inventory.py, and engines/test_documented_pages.py for
`node` and `AMD node`. A page that only some scenario knows has the pattern `*`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.documented.command_lines import CommandLine, all_lines

Lines = dict[str, tuple[str, ...]]

# A line that the original page has too is claimed there.
TRANSLATIONS = {"README.ko.md": "README.md", "docs/ko/kubernetes.md": "docs/how-to/kubernetes.md"}

SCENARIOS: dict[str, Lines] = {
    # `make` in a checkout: the target exists, and the test that runs it.
    "checkout": {
        "README.md": ("make *",),
        "docs/how-to/air-gapped.md": ("make *",),
        "docs/how-to/install.md": ("make *",),
        "docs/how-to/kubectl.md": ("make *",),
        "docs/start/workstation.md": ("make *",),
    },
    # helm and kubectl with an API server, and what reads their output.
    "cluster": {
        "README.md": ("helm *",),
        "docs/amd.md": ("kubectl *", "helm *"),
        "docs/dra.md": ("kubectl *", "helm *"),
        "docs/how-to/air-gapped.md": ("helm *",),
        "docs/how-to/alerts.md": ("*",),
        "docs/how-to/install.md": ("kubectl *",),
        "docs/how-to/kind.md": ("kubectl *", "helm *"),
        "docs/how-to/kubectl.md": ("kubectl *",),
        "docs/how-to/kubernetes.md": ("kubectl *", "helm *", "cp *"),
        "docs/how-to/share-a-gpu.md": ("kubectl *",),
        "docs/how-to/troubleshooting.md": ("kubectl *",),
        "docs/nri.md": ("kubectl *", "helm *"),
        "docs/reference/explain.md": ("*",),
        "docs/reference/plugin.md": ("kubectl *",),
        "docs/reference/support-bundle.md": ("kubectl *",),
        "docs/start/gpu-operator.md": ("*",),
        "docs/start/kubernetes.md": ("kubectl *", "helm *"),
    },
    # gpuhook with a profile, or on a broken node of tests/doctor.
    "inventory": {
        "docs/amd.md": ("gpuhook * --inventory *",),
        "docs/dra.md": ("gpuhook *",),
        "docs/how-to/kubernetes.md": ("gpuhook *",),
        "docs/how-to/mig.md": ("gpuhook inventory *",),
        "docs/how-to/share-a-gpu.md": ("gpuhook device-plugin *",),
        "docs/how-to/troubleshooting.md": (
            "gpuhook explain *--inventory *",
            "gpuhook explain GH*",
        ),
        "docs/reference/plugin.md": ("gpuhook *",),
        "docs/start/debug.md": ("gpuhook doctor", "gpuhook explain GH*"),
        "docs/start/kubernetes.md": ("gpuhook *",),
    },
    # A Debian that systemd has booted, with Docker, podman, containerd and simulated GPUs.
    "node": {
        "README.md": ("sudo *", "podman *", "docker *"),
        "docs/how-to/air-gapped.md": ("apt-get *", "docker *"),
        "docs/how-to/by-hand.md": ("*",),
        "docs/how-to/containerd.md": ("*",),
        "docs/how-to/engines.md": ("*",),
        "docs/how-to/image.md": ("*",),
        "docs/how-to/install.md": (
            "apt-get *",
            "gpuhook *",
            "tar *",
            "sudo *",
        ),
        "docs/how-to/kind.md": ("gpuhook *",),
        "docs/how-to/kubernetes.md": ("docker *", "/opt/gpuhook/bin/gpuhook *"),
        "docs/how-to/live.md": ("*",),
        "docs/how-to/mig.md": ("gpuhook refresh", "gpuhook cdi list", "docker *"),
        "docs/how-to/migration.md": ("*",),
        "docs/how-to/nerdctl.md": ("gpuhook *",),
        "docs/how-to/podman.md": ("*",),
        "docs/how-to/services.md": ("*",),
        "docs/how-to/share-a-gpu.md": (
            "docker *",
            "gpuhook ps*",
            "gpuhook limits *",
            "gpuhook attach *",
            "gpuhook repair *",
        ),
        "docs/how-to/slurm.md": ("*",),
        "docs/how-to/troubleshooting.md": (
            "docker *",
            "gpuhook explain ml/*",
            "gpuhook doctor",
        ),
        "docs/ko/kubernetes.md": ("*",),
        "docs/nri.md": ("systemctl *", "journalctl *", "gpuhook *"),
        "docs/reference/cdi-specs.md": ("*",),
        "docs/reference/cli.md": ("*",),
        "docs/reference/compare.md": ("*",),
        "docs/reference/configuration.md": ("*",),
        "docs/reference/doctor.md": ("*",),
        "docs/reference/extras.md": ("*",),
        "docs/reference/labels.md": ("*",),
        "docs/reference/map.md": ("*",),
        "docs/reference/memory.md": ("*",),
        "docs/reference/support-bundle.md": ("sudo *", "gpuhook *"),
        "docs/start/debug.md": (
            "gpuhook doctor -*",
            "gpuhook explain -[f-]*",
            "gpuhook explain ml/*",
            "gpuhook [!de]*",
        ),
        "docs/start/kubernetes.md": ("docker *",),
        "docs/start/workstation.md": ("sudo *", "gpuhook *", "podman *", "docker *"),
    },
    # The same Debian with simulated AMD GPUs.
    "AMD node": {
        "docs/amd.md": ("sudo *", "podman *", "docker *"),
    },
}

# No test runs these lines.
NOT_RUN: dict[str, Lines] = {
    "downloads packages from PyPI; contract/test_wheel.py installs the wheel": {
        "docs/how-to/air-gapped.md": (".venv/bin/pip download *", "python3 -m venv *"),
        "docs/how-to/kubectl.md": ("pipx *",),
    },
    "a Debian has no repository of RPMs; contract/test_packages.py reads them with rpm": {
        "docs/how-to/install.md": ("dnf install ./build*", "dnf install --allowerasing *"),
    },
    "replaces the node's packages; contract/test_standalone.py installs the standalone ones": {
        "docs/how-to/install.md": ("dpkg --install *",),
    },
    "kind and minikube download the image of their nodes": {
        "docs/how-to/kind.md": ("kind *", "minikube *"),
    },
    "Debian has no nerdctl": {
        "docs/how-to/nerdctl.md": ("nerdctl *",),
    },
    "changes the MIG mode of a GPU, which the simulated nvidia-smi does not do": {
        "docs/how-to/mig.md": ("nvidia-smi *",),
    },
}


def claims(line: CommandLine) -> list[tuple[str, str]]:
    """Return scenario, or reason, and pattern of each claim of a line."""
    tables = [*SCENARIOS.items(), *NOT_RUN.items()]
    return [
        (name, pattern)
        for name, pages in tables
        for pattern in pages.get(line.page, ())
        if fnmatchcase(line.words, pattern)
    ]


def lines_of_scenario(scenario: str) -> dict[str, list[CommandLine]]:
    """Return the lines that a scenario runs, by page."""
    found: dict[str, list[CommandLine]] = {}
    for line in own_lines():
        if scenario in {name for name, _ in claims(line)}:
            found.setdefault(line.page, []).append(line)
    return found


def own_lines() -> list[CommandLine]:
    """Return the lines of all pages, without those that a translation has of its original."""
    lines = all_lines()
    known = {(line.page, line.words) for line in lines}
    return [line for line in lines if (TRANSLATIONS.get(line.page), line.words) not in known]
