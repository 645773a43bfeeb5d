# SPDX-License-Identifier: Apache-2.0
"""Generated directories of CDI specs, in JSON and in YAML, with what their readers disagree on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

# Texts of a plain scalar in YAML that some readers take for another type, or write differently.
PLAIN = [
    "0", "00", "007", "010", "08", "0x10", "0o17", "0b11", "1_000", "-1", "+1", "-0", "1e3", "1E3",
    "1.0", "1.50", ".5", "5.", ".inf", ".nan", "y", "n", "yes", "No", "ON", "off", "true", "False",
    "TRUE", "tRue", "null", "Null", "~", "0:1", "1:30", "190:20:30", "2001-01-01", "0.", "1e", "e1",
    "2001-12-14t21:59:43.10-05:00", "=", "<<", "0xg", "09", "1__0", "_1", "9223372036854775808",
    "18446744073709551616", "0x", "-0x10", "+0b1", "0o8", "1.2.3", "1,000", "123e-2", "a b",
]  # fmt: skip
TAGGED = [
    "!!str 010",
    '!!int "5"',
    "!!str true",
    "!!bool yes",
    "!x 5",
    "!!float 1",
    "!!binary aGk=",
]
STRANGE = [
    "\N{GRINNING FACE}",
    "\x7f",
    "\x80",
    "\x85",
    "\u2028",
    "\ufeff",
    "\uffff",
    "\t",
    "é",
    "\n",
]
NAMES = [
    "0",
    "1",
    "gpu0",
    "a",
    "GPU-1:2",
    "all",
    "0:1",
    "x_y",
    "a.b",
    "-a",
    "a-",
    "a b",
    "ä",
    "a/b",
]
# A vendor or a class of one character makes this release of the library panic.
KINDS = [
    *["example.com/gpu"] * 40, "example.com/nic", "aa/bb", "Ex.com/g_p-u", "example.com", "1a/bb",
    "aa/1b", "aa-/bb", "aa./bb", "aa/bb-", "/bb", "aa/", "aa/bb/cc", "a_b/cc", "ex ample/bb", "",
]  # fmt: skip
VERSIONS = [
    *["0.5.0"] * 12,
    "0.3.0",
    "0.4.0",
    "0.2.0",
    "0.1.0",
    "0.5",
    "v0.5.0",
    "0.5.0-rc",
    "9.9.9",
]
FILES = ["a.json", "b.yaml", "c.yaml", "b.json", "x.yml", ".yaml", "Z.yaml", "a.JSON", "y.yaml~"]


class Plain(str):
    """The text of a scalar that YAML has without quotes. JSON has it as a string."""

    __slots__ = ()


@dataclass(frozen=True)
class SpecFile:
    """A file in one of the directories, the first of which has the lowest priority."""

    layer: int
    name: str
    text: str


def directories(random: Random) -> list[SpecFile]:
    """Return the files of two directories."""
    count = random.choice((1, 1, 1, 2, 3))
    names = random.sample(FILES, count)
    return [
        SpecFile(random.randrange(2), name, document(random, is_json=not name.endswith(".yaml")))
        for name in names
    ]


def document(random: Random, *, is_json: bool) -> str:
    """Return the text of a spec, of which most are valid."""
    tree = _spec(random)
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        tree = _changed(tree, random)
    if is_json:
        indent = random.choice((None, None, 2, "\t", 0))
        text = json.dumps(tree, ensure_ascii=random.random() < 0.5, indent=indent)
        return _with_repeated_key(text, random) if random.random() < 0.05 else text
    return Yaml(random).text(tree)


def _spec(random: Random) -> dict[str, Any]:
    names = random.sample(NAMES[: random.choice((6, 9, len(NAMES)))], random.randrange(1, 4))
    spec: dict[str, Any] = {
        "cdiVersion": random.choice(VERSIONS),
        "kind": random.choice(KINDS),
        "devices": [
            {"name": _word(name, random), "containerEdits": _edits(random)} for name in names
        ],
    }
    if random.random() < 0.6:
        spec["containerEdits"] = _edits(random)
    return spec


def _word(word: str, random: Random) -> str:
    if random.random() < 0.12:
        return Plain(random.choice(PLAIN))
    return Plain(word) if word.isalnum() and random.random() < 0.5 else word


def _edits(random: Random) -> dict[str, Any]:
    edits: dict[str, Any] = {}
    if random.random() < 0.6:
        edits["env"] = [f"{random.choice('ABC')}={random.choice(('1', '', 'a b'))}"]
        edits["env"] += ["PATH=/x"] * (random.random() < 0.3)
    if random.random() < 0.7:
        edits["deviceNodes"] = [_node(random) for _ in range(random.randrange(1, 3))]
    if random.random() < 0.4:
        edits["mounts"] = [_mount(random) for _ in range(random.randrange(1, 3))]
    if random.random() < 0.3:
        names = ("createContainer", "prestart", "createRuntime", "poststop", "startContainer", "x")
        hook = {"hookName": random.choice(names), "path": "/hook", "args": ["hook", "a"]}
        edits["hooks"] = [{**hook, "env": ["A=1"]} if random.random() < 0.7 else hook]
    return edits


def _node(random: Random) -> dict[str, Any]:
    node: dict[str, Any] = {
        "path": random.choice(("/dev/null", "/dev/zero", "/dev/new", "/dev/full"))
    }
    if random.random() < 0.5:
        node |= {"type": random.choice("cccbpu"), "major": random.choice((195, 1, 0))}
        node["minor"] = random.choice((0, 7))
    for key, values in {
        "hostPath": ("/dev/null", "/dev/missing", "/dev/full"),
        "permissions": ("rw", "rwm", "", "rx", "m"),
        "fileMode": (0o666, 438, 0),
        "uid": (0, 5),
        "gid": (0, 5),
    }.items():
        if random.random() < 0.2:
            node[key] = random.choice(values)
    return node


def _mount(random: Random) -> dict[str, Any]:
    place = random.choice(("/usr/lib/x", "/usr/lib", "/etc/y", "/a/b/c", "/proc"))
    mount: dict[str, Any] = {"hostPath": "/h", "containerPath": place}
    if random.random() < 0.6:
        mount["options"] = random.choice((["ro", "nodev"], [], ["bind"]))
    if random.random() < 0.2:
        mount["type"] = random.choice(("bind", "tmpfs", ""))
    return mount


def _changed(tree: Any, random: Random) -> Any:
    """Return a value with one change at a place that chance decides."""
    if isinstance(tree, dict) and tree:
        key = random.choice(list(tree))
        kind = random.random()
        if kind < 0.75:
            return {**tree, key: _changed(tree[key], random)}
        if kind < 0.82:
            return {name: value for name, value in tree.items() if name != key}
        if kind < 0.9:
            other = random.choice((key.upper(), key.title(), "x", f"{key}x", key.swapcase()))
            return {other if name == key else name: value for name, value in tree.items()}
        return {**tree, random.choice(("x", "hooks", "env", "Kind", "mounts", "name")): None}
    if isinstance(tree, list) and tree and random.random() < 0.8:
        at = random.randrange(len(tree))
        return [*tree[:at], _changed(tree[at], random), *tree[at + 1 :]]
    if isinstance(tree, int) and random.random() < 0.6:
        values = (-1, 0, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1.0, 1.5, True, "5")
        return random.choice((*values, *(Plain(one) for one in PLAIN)))
    if isinstance(tree, str) and random.random() < 0.7:
        return (
            Plain(random.choice(PLAIN)) if random.random() < 0.7 else tree + random.choice(STRANGE)
        )
    return random.choice((None, [], {}, "", "x", 5, True, [None], [{}], ["a=b"], {"a": "b"}))


def _with_repeated_key(text: str, random: Random) -> str:
    key = random.choice(("kind", "devices", "name", "path", "env", "containerEdits"))
    return text.replace(f'"{key}":', f'"{key}": null, "{key}":', 1)


class Yaml:
    """Writes values as YAML, in the styles that it has."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._anchors: list[str] = []

    def text(self, tree: Any) -> str:
        """Return a document."""
        body = self._value(tree, 0).lstrip("\n")
        before = self._random.choice(("", "", "---\n", "# x\n", "%YAML 1.1\n---\n", "\ufeff"))
        after = self._random.choice(("\n", "\n", "\n", "\n...\n", "\n---\n", "\n---\na: b\n", ""))
        return before + body + after

    def _value(self, tree: Any, depth: int) -> str:
        """Return a value, which begins with a line break if it needs one."""
        random = self._random
        if isinstance(tree, (dict, list)) and (not tree or depth > 3 or random.random() < 0.15):
            return " " + self._flow(tree)
        if isinstance(tree, dict):
            return self._mapping(tree, depth)
        if isinstance(tree, list):
            start = "\n" + "  " * depth + "-"
            return "".join(start + self._value(one, depth + 1) for one in tree)
        return " " + self._scalar(tree)

    def _mapping(self, tree: dict[str, Any], depth: int) -> str:
        random = self._random
        lines = [f"{self._key(key)}:{self._value(one, depth + 1)}" for key, one in tree.items()]
        if random.random() < 0.02:
            lines.append(random.choice(lines))
        if random.random() < 0.02:
            lines.append(random.choice(("<<: {env: [M=1]}", "? a\n: b", "<<: *x", "<<: [{a: b}]")))
        tab = "\t" if random.random() < 0.005 else ""
        return "".join("\n" + "  " * depth + tab + line for line in lines)

    def _key(self, key: str) -> str:
        return self._random.choice(
            (key,) * 20 + (f'"{key}"', f"'{key}'", f"{key} ", f"!!str {key}")
        )

    def _flow(self, tree: Any) -> str:
        if isinstance(tree, dict):
            pairs = (f"{key}: {self._flow(one)}" for key, one in tree.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(tree, list):
            return "[" + ", ".join(map(self._flow, tree)) + "]"
        return self._scalar(tree, is_flow=True)

    def _scalar(self, value: Any, *, is_flow: bool = False) -> str:
        random = self._random
        if isinstance(value, Plain):
            if random.random() < 0.05:
                return random.choice(TAGGED)
            return json.dumps(value) if is_flow and "," in value else str(value)
        if isinstance(value, str):
            is_plain = value.isascii() and value.replace("/", "a").replace("=", "a").isalnum()
            if is_plain and value[0].isalpha() and random.random() < 0.5:
                return value
            if random.random() < 0.1 and value and not is_flow:
                return f"|-\n                {value}"
            return json.dumps(value, ensure_ascii=False)
        if value is None:
            return random.choice(("null", "~", "" if not is_flow else "null"))
        return json.dumps(value)
