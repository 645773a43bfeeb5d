# SPDX-License-Identifier: Apache-2.0
"""The description of configuration keys: each is declared once, at its field of a dataclass.

A declaration has the kind of value, the description and the default. The names in the file, of the
option and of its variable follow from the field's name. The reader of the file, `--print-config`,
`--print-schema`, the options of the command line and the tables of the documentation are all
derived from the declaration.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from gpuhook.device_plugin.config.grammar.value_kinds import Text, ValueKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_ENTRIES = 256  # of a list: the checks compare each entry with each
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command line. `key` is the path that it sets in the file, or "".

    In a declaration it has only what does not follow from the field; see keys_of(). `ignored` is
    the reason why an option of NVIDIA's plugin has no effect here.
    """

    name: str = ""  # "mig-strategy"
    variables: tuple[str, ...] = ()  # the first one that is set applies
    kind: ValueKind = Text()
    about: str = ""
    default: str = ""  # as text, "" if there is none to show
    aliases: tuple[str, ...] = ()
    has_one_dash: bool = False  # also `-name`, as Go's programs accept it
    key: str = ""
    attribute: str = ""  # the field of its dataclass
    separator: str = ""  # between several values in a variable, if it is not a comma
    is_empty_set: bool = False  # an empty variable is a value
    is_of_labels: bool = False  # of `gpuhook labels` only
    ignored: str = ""

    @property
    def field(self) -> str:
        """The name of the option as an attribute."""
        return self.name.replace("-", "_")

    @property
    def help(self) -> str:
        """The description with the default."""
        shows = self.default not in ("", "false") and "Default: " not in self.about
        return f"{self.about} Default: {self.default}." if shows else self.about


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. `may_be_null`: a null section is a missing one."""

    name: str
    kind: ValueKind | Section | Entries | Either
    about: str
    field: str = ""  # of the section's dataclass; "": the value is only read
    default: Any = None
    required: bool = False
    may_be_null: bool = False
    is_always_printed: bool = False  # in list entries, also if it is the default
    option: Option | None = None

    @property
    def default_text(self) -> str:
        """The default as an option takes it, "" if there is none."""
        if not isinstance(self.kind, ValueKind) or self.default is None:
            return ""
        return self.kind.text(self.default)


def key(
    kind: ValueKind | Section | Entries | Either,
    about: str,
    default: Any = MISSING,
    *,
    name: str = "",
    option: Option | None = None,
    required: bool = False,
    is_always_printed: bool = False,
) -> Any:
    """Return the dataclass field of a key; without a default the key is required.

    `name` is the name in the file if it is not that of the field, `memory_reserve: memoryReserve`.
    """
    has_default = default is not MISSING
    entry = Key(
        name,
        kind,
        about,
        default=default if has_default else None,
        required=required or not has_default,
        is_always_printed=is_always_printed,
        option=option,
    )
    return field(default=default, metadata={"key": entry})


def flag(
    kind: ValueKind, about: str, default: Any, *, name: str = "", option: Option | None = None
) -> Any:
    """Return the dataclass field of a key with an option, which has the field's name."""
    return key(kind, about, default, name=name, option=option or Option())


def keys_of(made: type[Any], options: str = "", variables: str = "") -> tuple[Key, ...]:
    """Return the keys that the fields of a dataclass declare, with their names.

    The option of `poll_interval` is --poll-interval after the prefix `options`; its variable is
    the option's name in upper case after the prefix `variables`.
    """
    return tuple(
        _named(one.metadata["key"], one.name, options, variables)
        for one in fields(made)
        if "key" in one.metadata
    )


def _named(declared: Key, field_name: str, options: str, variables: str) -> Key:
    first, *others = field_name.split("_")
    name = declared.name or first + "".join(map(str.capitalize, others))
    found = replace(declared, name=name, field=field_name)
    if found.option is None or not isinstance(found.kind, ValueKind):
        return found
    option_name = found.option.name or options + field_name.replace("_", "-")
    variable = variables + option_name.upper().replace("-", "_")
    option = replace(
        found.option,
        name=option_name,
        variables=found.option.variables or (variable,),
        kind=found.kind,
        about=found.about,
        default=found.default_text,
        attribute=field_name,
    )
    return replace(found, option=option)


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with these keys, and the function that builds its object from their values.

    `unserved` are (key, reason, hint) of keys that gpuhook refuses rather than ignores: CDI has
    them, and the kubelet cannot carry them.
    """

    build: Callable[..., Any]
    keys: tuple[Key, ...]
    unserved: tuple[tuple[str, str, str], ...] = ()

    def key(self, name: str) -> Key | None:
        """Return the key of that name."""
        return next((key for key in self.keys if key.name == name), None)

    def built(self, values: Values) -> Any:
        """Return the object of checked values."""
        return self.build(
            **{
                key.field: _built(key.kind, values[key.name])
                for key in self.keys
                # An empty text is the default of a key that has none to name.
                if key.field
                and key.name in values
                and not (key.default is None and values[key.name] == "")
            }
        )

    def plain(self, made: Any, *, is_entry: bool = False) -> Values:
        """Return the data that a file has for an object; list entries omit their defaults."""
        values = {}
        for key in self.keys:
            if not key.field or isinstance(key.kind, Either):
                continue
            value = getattr(made, key.field)
            is_default = value is None if key.default is None else is_entry and value == key.default
            if not is_default or key.required or key.is_always_printed:
                values[key.name] = _plain(key.kind, value, is_entry=is_entry)
        return values

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the mapping; an empty mapping may be null."""
        required = [key.name for key in self.keys if key.required]
        made: dict[str, Any] = {
            "type": "object" if required else ["object", "null"],
            "additionalProperties": False,
            "properties": {key.name: _key_schema(key) for key in self.keys},
        }
        return made | ({"required": required} if required else {})


def section_of(
    made: type[Any],
    options: str = "",
    variables: str = "",
    unserved: tuple[tuple[str, str, str], ...] = (),
) -> Section:
    """Return the section of a dataclass; see keys_of()."""
    return Section(made, keys_of(made, options, variables), unserved)


@dataclass(frozen=True, slots=True)
class Entries:
    """A list of mappings; `what` names an entry in messages."""

    section: Section
    what: str
    may_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class Either:
    """A value of a kind, or a mapping in its place."""

    kind: ValueKind
    section: Section


def walk(section: Section, path: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key with its path, a section before its keys; [] stands for an index."""
    for key in section.keys:
        here = f"{path}.{key.name}" if path else key.name
        yield here, key
        if isinstance(key.kind, Section):
            yield from walk(key.kind, here)
        elif isinstance(key.kind, Entries):
            yield from walk(key.kind.section, here + "[]")
        elif isinstance(key.kind, Either):
            yield from walk(key.kind.section, here)


def _built(kind: object, value: Any) -> Any:
    if isinstance(kind, Entries):
        return tuple(kind.section.built(entry) for entry in value)
    if isinstance(kind, Either) and isinstance(value, dict):
        kind = kind.section
    return kind.built(value) if isinstance(kind, Section) else value


def _plain(kind: object, value: Any, *, is_entry: bool) -> Any:
    if isinstance(kind, Entries):
        return [kind.section.plain(entry, is_entry=True) for entry in value]
    if isinstance(kind, Section):
        return kind.plain(value, is_entry=is_entry)
    return kind.plain(value) if isinstance(kind, ValueKind) else value


def _key_schema(key: Key) -> dict[str, Any]:
    about: dict[str, Any] = {"description": key.about}
    if isinstance(key.kind, Section):
        null = {"type": ["object", "null"]} if key.may_be_null else {}
        return about | key.kind.schema() | null
    if isinstance(key.kind, Entries):
        entries = {"type": "array", "maxItems": MOST_ENTRIES, "items": key.kind.section.schema()}
        return about | entries | ({} if key.kind.may_be_empty else {"minItems": 1})
    if isinstance(key.kind, Either):
        return about | {"anyOf": [key.kind.kind.schema(), key.kind.section.schema()]}
    return about | key.kind.schema()
