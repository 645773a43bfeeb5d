# SPDX-License-Identifier: Apache-2.0
"""A row of the tables of `create`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.record.box import Box


@dataclass(frozen=True)
class Creation:
    """A container to create: its config.json, and what is special about its node.

    `variables` are the engine's. `raw` is a config.json as it is; `settings` replaces config.yaml;
    `before` is called after all of these are written.
    """

    name: str
    env: tuple[str, ...] = ()
    oci: Mapping[str, Any] = field(default_factory=dict)
    scene: str = "h100"
    root: str = "empty"
    raw: str | bytes | None = None
    has_config: bool = True
    settings: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[Box], None] | None = None
    before_command: tuple[str, ...] = ("--root", "/mnt/case/containers")
    words: tuple[str, ...] = ("create", "--bundle", "/mnt/case/bundle")
    log_format: str = "json"
    times: int = 1
    is_altering: bool = False


def devices(value: str) -> tuple[str, ...]:
    """Return the variable that requests devices."""
    return (f"NVIDIA_VISIBLE_DEVICES={value}",)
