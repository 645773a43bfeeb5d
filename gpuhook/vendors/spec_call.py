# SPDX-License-Identifier: Apache-2.0
"""One call of generate-cdi for the GPUs of a vendor: its options, and the specs that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuhook.cdi.hot.container_edits import Spec


class WrongOptionsError(Exception):
    """Options of the command line that exclude each other: wrong usage of the command."""


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """The options of a call. `capabilities` None means all; no `device_ids` means all.

    `inventory` is the node's dump, None for the node below `host_root`. `vendor` is the vendor of
    the kind, "" for the default. `own` has the options that only this vendor's specs have, by
    parameter. `given` are the parameters with a value of the caller or of the settings, `named`
    those of the command line. `words` are the options with which `gpuhook refresh` repeats the call
    for its file. `foreign_hook` is another hook program that the options name, "" for none.
    """

    inventory: str | None = None
    host_root: str = "/"
    dev_root: str | None = None
    device_ids: tuple[str, ...] = ()
    with_all: bool = True
    capabilities: frozenset[str] | None = None
    vendor: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    foreign_hook: str = ""


def _record_nothing(path: str) -> tuple[str, ...]:
    """Record nothing about the spec at `path`."""
    del path
    return ()


@dataclass(frozen=True, slots=True)
class DescribedSpecs:
    """The spec of a call, and warnings about what it omits.

    `further` are additional specs: the infix of the file's name before its extension, and the spec.
    `facts` are those of the node for the log. `record` is called with the path of the written spec;
    it returns a sentence for each file of the state directory that could not be written.
    """

    spec: Spec
    warnings: tuple[str, ...] = ()
    further: tuple[tuple[str, Spec], ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    record: Callable[[str], tuple[str, ...]] = _record_nothing


@dataclass(frozen=True, slots=True)
class SpecCall:
    """A call whose options are checked. `notes` are about options without effect.

    `describe` reads the node; it may take as long as the driver does. `several` is the option that
    makes several specs, "" for one spec.
    """

    describe: Callable[[], DescribedSpecs]
    notes: tuple[str, ...] = ()
    several: str = ""
