# SPDX-License-Identifier: Apache-2.0
"""What a container's NVIDIA_REQUIRE_JETPACK comes to: files of a Tegra, or nothing."""

from __future__ import annotations

from typing import Any

from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode


def names(answer: SimulatedAnswer, node: NvidiaNode) -> list[str]:
    """Return the devices that the container asks for, with that of a Tegra's further files."""
    chosen = answer.verdict.chosen
    return [*chosen.names, *node.further_names(answer.asked)] if chosen else []


def notes(answer: SimulatedAnswer, node: NvidiaNode) -> list[str]:
    """Return a sentence about the variable, [] where the container has none."""
    variable, wanted = vocabulary.CSV_MOUNTS
    value = parse.environment(answer.asked).get(variable)
    if value is None:
        return []
    return [f"{variable}={value} {_comes_to(value == wanted, answer, node)}"]


def _comes_to(is_known: bool, answer: SimulatedAnswer, node: NvidiaNode) -> str:
    if not is_known:
        return f"asks for nothing: {vocabulary.CSV_MOUNTS[1]} is the only value that counts"
    if answer.verdict.chosen is None:
        return "adds nothing to a container that gets no GPU"
    found: list[Any] = node.further_names(answer.asked)
    if found:
        return f"adds {found[0]}: what all files of this Tegra name, beside the usual three"
    return "adds nothing: no spec here has the further files of a Tegra"
