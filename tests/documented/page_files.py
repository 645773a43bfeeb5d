# SPDX-License-Identifier: Apache-2.0
"""The files that the lines of a page name: examples of the pages."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.documented.command_lines import FENCE, text_of, yaml_files

GUIDE = "docs/how-to/kubernetes.md"


def page_files(page: str, directory: Path) -> None:
    """Write the files that a page shows, and those that it refers to, to a directory."""
    found = {
        "pods.yaml": pods(),
        "pod.yaml": pods().partition("---")[0],
        "plugin.yaml": plugin(),
        **yaml_files(page),
    }
    for name, text in found.items():
        (directory / name).write_text(text, encoding="utf-8")


def pods() -> str:
    """Return the two pods of the guide."""
    return next(block for block in blocks(GUIDE) if "gpu-test-2" in block)


def plugin() -> str:
    """Return the plugin's configuration in the guide's values."""
    values = yaml.safe_load(yaml_files(GUIDE)["values.yaml"])
    return str(values["devicePlugin"]["config"]["data"]["default"])


def blocks(page: str) -> list[str]:
    """Return the YAML blocks of a page."""
    return [text for kind, text in FENCE.findall(text_of(page)) if kind == "yaml"]
