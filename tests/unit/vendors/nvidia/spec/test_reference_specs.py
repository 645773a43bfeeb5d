# SPDX-License-Identifier: Apache-2.0
"""The specs in cdi-specs/ are those that the code generates; as a program, this file writes
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.cdi import spec_file as spec_files
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.spec import amd_spec
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.spec.spec_choices import SpecChoices

DIRECTORY = Path(__file__).parents[5] / "cdi-specs"
SPECS = {
    "t4": ("t4", Choices()),
    "h100x8": ("h100x8", Choices()),
    "lost-gpu": ("lost-gpu", Choices()),
    "a100-mig": ("a100-mig", Choices()),
    "t4-hooks-none": ("t4", Choices(hooks="none")),
}
OF_AMD = ("mi300x8", "radeon")
NAMES = (*SPECS, *OF_AMD)


def generated(name: str) -> str:
    """Return the text of the reference spec `name` as the code generates it now."""
    if name in OF_AMD:
        found = amd_spec.describe(amd_dump.load(name), SpecChoices())
        return spec_files.document(found.spec, "yaml")
    profile, choices = SPECS[name]
    return spec_files.document(describe(dump_file.load(profile), choices).spec, "yaml")


@pytest.mark.parametrize("name", NAMES)
def test_reference_spec_is_current(name: str) -> None:
    """Each reference spec equals, byte for byte, the output of generate-cdi for its profile."""
    assert (DIRECTORY / f"{name}.yaml").read_text("utf-8") == generated(name)


def test_every_file_is_a_reference_spec() -> None:
    """Each spec in the directory is generated, and the README names it."""
    assert {path.stem for path in DIRECTORY.glob("*.yaml")} == set(NAMES)
    readme = (DIRECTORY / "README.md").read_text("utf-8")
    assert all(f"({name}.yaml)" in readme for name in NAMES)


if __name__ == "__main__":
    for spec in NAMES:
        (DIRECTORY / f"{spec}.yaml").write_text(generated(spec), "utf-8")
