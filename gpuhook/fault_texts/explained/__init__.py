# SPDX-License-Identifier: Apache-2.0
"""Every fault at length: what causes it, what cures it, and an example of both.

For `gpuhook explain GH1012` and docs/errors.md; no program that starts a container loads this.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from gpuhook import fault_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Who must act, in people's words, by the name of a fault's kind.
KINDS = {
    "RequestError": "the request is wrong",
    "FileError": "a file is wrong",
    "DriverError": "the driver is missing, incomplete or of another version",
    "RefusedError": "a policy or the safety of the host forbids it",
    "HostError": "this host cannot do it",
}
BLOCKS = {
    "requests": "What containers ask for",
    "cdi_specs": "CDI specs",
    "driver": "The driver and its GPUs",
    "containers": "Bundles and root file systems",
    "runtimes": "The runtime wrapper",
    "settings": "Settings, inventories and the command line",
    "hooks": "Hooks",
    "live": "Containers that run",
    "plugin": "The device plugin",
    "diagnosis": "Looking at nodes and requests",
    "engines": "Configuring container engines",
    "installing": "Installing on a node",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A fault at length. `example` are lines of a terminal or a file."""

    code: str
    block: str  # the title of its block
    kind: str  # who must act
    message: str  # with {names} where facts stand
    hint: str
    cause: str
    cure: str
    example: str


def explanation(code: str) -> Explanation:
    """Return the explanation of a fault; KeyError for no code of ours."""
    kind, message, hint = fault_texts.text_of(code)
    name = fault_texts.BLOCKS[code[:4]]
    cause, cure, example = _texts(name)[code]
    return Explanation(
        code=code,
        block=BLOCKS[name],
        kind=KINDS[kind.__name__],
        message=message,
        hint=hint,
        cause=cause,
        cure=cure,
        example=example.strip("\n"),
    )


def all_of_them() -> Iterator[Explanation]:
    """Yield the explanations of all faults, in the order of their codes."""
    for name in fault_texts.BLOCKS.values():
        for code in _texts(name):
            yield explanation(code)


def _texts(name: str) -> dict[str, tuple[str, str, str]]:
    found: dict[str, tuple[str, str, str]] = importlib.import_module(
        f"{__name__}.{name}"
    ).EXPLANATIONS
    return found
