# SPDX-License-Identifier: Apache-2.0
"""What the grammar of the configuration file is made of: sections, their keys, lists of both."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.value_kinds import ValueKind

MOST_ENTRIES = 256  # of a list: each is compared with each


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with these keys. `unserved`: (name, why not, hint) of keys that cannot be served.

    What CDI has and the kubelet cannot carry is such: to leave it out would be to do something else
    than was asked for.
    """

    keys: tuple[Key, ...]
    unserved: tuple[tuple[str, str, str], ...] = ()

    def key(self, name: str) -> Key | None:
        """Return the key of that name."""
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class Entries:
    """A list of mappings; `what` names one of them, and without one the list is an error."""

    section: Section
    what: str
    may_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class Either:
    """A value of a kind, or a mapping in its place."""

    kind: ValueKind
    section: Section


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. `may_be_null`: a section that is null is one that is not there."""

    name: str
    kind: ValueKind | Section | Entries | Either
    about: str
    field: str = ""
    required: bool = False
    may_be_null: bool = False
