# SPDX-License-Identifier: Apache-2.0
"""Generated texts of config.json: common ones, with what readers of JSON disagree on."""

from __future__ import annotations

import json
from random import Random
from typing import Any

# Objects are lists of pairs, so that a key can occur twice; Raw is text of a value or a key.
Pairs = list[tuple[Any, Any]]


class Raw(bytes):
    """JSON text that is written as it is."""

    __slots__ = ()


NAMES = [
    "process", "env", "user", "uid", "gid", "additionalGids", "capabilities", "bounding", "root",
    "path", "readonly", "mounts", "destination", "source", "type", "options", "uidMappings",
    "hooks", "prestart", "createRuntime", "createContainer", "args", "timeout", "annotations",
    "linux", "devices", "major", "minor", "fileMode", "resources", "allow", "access", "namespaces",
    "cgroupsPath", "intelRdt", "hostname", "ociVersion", "cwd", "netDevices",
]  # fmt: skip
NUMBERS = [
    b"-0", b"0", b"1.0", b"1e2", b"1E+2", b"-1", b"0.5", b"4294967295", b"4294967296", b"1e400",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"9" * 400,
    b"-0.0", b"01", b"+1", b".5", b"1.", b"0x10", b"1e", b"--1", b"NaN", b"Infinity", b"-Infinity",
]  # fmt: skip
WRONG = [
    b"null", b"true", b"false", b"[]", b"{}", b'""', b'"x"', b"5", b"[null]", b"[[]]", b"[{}]",
    b'{"a":1}', b'["a","b"]', b'{"env":["A=2"]}', b"[5]", b"tru", b"", b"[,]", b"{,}", b"[1,]",
]  # fmt: skip
TEXTS = [
    rb"\u0000", rb"\ud800", rb"\udcff", rb"\ud83d\ude00", rb"\/", rb"\u002f", b"\xff", b"\xc3\xa9",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", rb"\x", b"\\", b"\n", b"\x7f", b"\x00",
    rb"\"", rb"\u00zz", b"\xe2\x80\xa8", rb"\ud800\xff", b"\xc0\x80", b",", b"=", b" ", b"<&>",
]  # fmt: skip
LETTERS = {"s": "\u017f", "S": "\u017f", "k": "\u212a", "K": "\u212a"}
GPUS = ["0", "1", "all", "none", "void", "", "example.com/gpu=1", "0,1", "2", "0,", "All", "0 "]


def document(random: Random) -> bytes:
    """Return the text of a config.json, of which most are what a runtime accepts."""
    tree = _config(random)
    for _ in range(random.choice((0, 1, 1, 1, 1, 2, 2, 4))):
        tree = _changed(tree, random)
    text = _text(tree, random)
    if random.random() < 0.08:
        text = _around(text, random)
    return text


def _config(random: Random) -> Pairs:
    env = ["PATH=/bin", "A=1", f"PLAIN_VISIBLE_DEVICES={random.choice(GPUS)}", "B=", "C"]
    random.shuffle(env)
    process: Pairs = [
        ("user", [("uid", random.choice((0, 1000))), ("gid", 0), ("additionalGids", [5, 6])]),
        ("args", ["/probe"]),
        ("env", env[random.randrange(3) :]),
        ("cwd", "/"),
        ("capabilities", [("bounding", random.choice((["CAP_SYS_ADMIN"], ["CAP_CHOWN"])))]),
    ]
    parts: Pairs = [
        ("ociVersion", "1.0.2"),
        ("process", process),
        ("root", [("path", "rootfs"), ("readonly", random.random() < 0.5)]),
        ("mounts", [_mount(random) for _ in range(random.randrange(4))]),
        ("linux", _linux(random)),
        ("x-unknown", [("a", 1.5), ("b", [Raw(b"1e5"), None])]),
    ]
    if random.random() < 0.3:
        hook = [("path", "/h"), ("args", ["h"]), ("timeout", 5)]
        parts.append(("hooks", [(random.choice(("prestart", "createContainer")), [hook])]))
    if random.random() < 0.3:
        name = random.choice(("example.com/gpu=0", "example.com/gpu=9", "example.com/gpu=0,0"))
        parts.append(("annotations", [("cdi.k8s.io/x", name), ("a", "b")]))
    random.shuffle(parts)
    return parts


def _mount(random: Random) -> Pairs:
    places = ["/proc", "/dev", "/usr/lib/plain.so", "/usr", "/var/run/plain/0", "//usr/lib/", "/x"]
    place = random.choice(places)
    source = "/dev/null" if place.startswith("/var/run") else "/src"
    return [("destination", place), ("type", "bind"), ("source", source), ("options", ["ro"])]


def _linux(random: Random) -> Pairs:
    node = [("path", random.choice(("/dev/plain0", "/dev/x"))), ("type", "c"), ("major", 7)]
    rule: Pairs = [("allow", False), ("access", "rwm")]
    kinds = random.sample(("pid", "mount", "user"), 2)
    return [
        ("devices", [node] * random.randrange(2)),
        ("resources", [("devices", [rule])]),
        ("namespaces", [[("type", kind)] for kind in kinds]),
        ("cgroupsPath", "/x"),
    ]


def _is_object(tree: Any) -> bool:
    return isinstance(tree, list) and bool(tree) and all(isinstance(one, tuple) for one in tree)


def _changed(tree: Any, random: Random) -> Any:
    """Return a value with one change, at a place that chance decides."""
    if isinstance(tree, list) and tree and random.random() < 0.85:
        at = random.randrange(len(tree))
        if not isinstance(tree[at], tuple):
            return [*tree[:at], _changed(tree[at], random), *tree[at + 1 :]]
        key, value = tree[at]
        if random.random() < 0.5 or isinstance(value, list):
            return [*tree[:at], (key, _changed(value, random)), *tree[at + 1 :]]
    if _is_object(tree) and random.random() < 0.8:
        return _changed_object(tree, random)
    return _changed_value(tree, random)


def _changed_object(pairs: Pairs, random: Random) -> Pairs:
    at = random.randrange(len(pairs))
    key, value = pairs[at]
    kind = random.randrange(6)
    if kind == 0:
        return pairs[:at] + pairs[at + 1 :]
    new = _another_key(key, random)
    if kind == 1:
        return [*pairs[:at], (new, value), *pairs[at + 1 :]]
    if kind == 2:  # a key of the runtime's, or one like it, anywhere
        new, value = _another_key(random.choice(NAMES), random), Raw(random.choice(WRONG))
    elif kind == 3:
        value = Raw(random.choice(WRONG))
    elif kind == 4:
        value = _changed_value(value, random)
    put = random.randrange(len(pairs) + 1)
    return [*pairs[:put], (new, value), *pairs[put:]]


def _another_key(key: Any, random: Random) -> Any:
    """Return a key that some readers take for `key`, or that key in another spelling."""
    if not isinstance(key, str) or not key:
        return key
    at = random.randrange(len(key))
    kind = random.randrange(8)
    if kind == 0:
        return key.upper() if random.random() < 0.5 else key.title()
    if kind == 1:
        return key[:at] + key[at].swapcase() + key[at + 1 :]
    if kind == 2:
        return "".join(LETTERS.get(one, one) for one in key)
    if kind == 3:
        text = f"{key[:at]}\\u{ord(key[at]):04x}{key[at + 1 :]}"
        return Raw(f'"{text}"'.encode())
    if kind == 4:
        put = random.choice((at, len(key)))
        piece = random.choice(TEXTS)
        return Raw(b'"' + key[:put].encode() + piece + key[put:].encode() + b'"')
    return key


def _changed_value(value: Any, random: Random) -> Any:
    if isinstance(value, str) and random.random() < 0.7:
        at = random.randrange(len(value) + 1)
        middle = random.choice(TEXTS)
        ends = [json.dumps(part)[1:-1].encode() for part in (value[:at], value[at:])]
        return Raw(b'"' + ends[0] + middle + ends[1] + b'"')
    if isinstance(value, (int, float)) and random.random() < 0.7:
        return Raw(random.choice(NUMBERS))
    if isinstance(value, list) and random.random() < 0.3 and not _is_object(value):
        return [*value, *value] if random.random() < 0.5 else [*value, Raw(random.choice(WRONG))]
    if random.random() < 0.03:
        depth = random.choice((50, 900, 5000, 11000))
        return Raw(b"[" * depth + b"]" * depth)
    return Raw(random.choice(WRONG if random.random() < 0.7 else NUMBERS))


def _text(tree: Any, random: Random) -> bytes:
    if isinstance(tree, Raw):
        return bytes(tree)
    space = random.choice((b"", b"", b"", b"", b"", b" ", b"\n", b"\t", b"\r\n"))
    if _is_object(tree):
        pairs = (_text(key, random) + space + b":" + _text(one, random) for key, one in tree)
        return b"{" + space + b",".join(pairs) + b"}"
    if isinstance(tree, list):
        return b"[" + b",".join(_text(one, random) for one in tree) + space + b"]"
    return json.dumps(tree, ensure_ascii=random.random() < 0.5).encode()


def _around(text: bytes, random: Random) -> bytes:
    """Return a document with something before or after it, or without its end."""
    before = random.choice((b"", b"", b"\xef\xbb\xbf", b" \n", b"\x00", b"\xff\xfe", b"\x0b"))
    after = random.choice((b"", b"\n", b"{}", b" x", b"\x00", b"}", b',{"process":{}}', b"\x0c"))
    if random.random() < 0.2:
        return before + text[: random.randrange(len(text) + 1)]
    return before + text + after


def variant(config: dict[str, Any], random: Random) -> bytes:
    """Return a text of a config.json that a runtime can run, with changed variables and user.

    Namespaces, mounts and the root file system remain: the container stays a container.
    """
    top: Pairs = _pairs(config)
    process: Pairs = next(value for key, value in top if key == "process")
    chosen: Any = [pair for pair in process if pair[0] in ("env", "user")]
    others = [pair for pair in process if pair not in chosen]
    for _ in range(random.choice((1, 1, 2, 3))):
        changed = _changed(chosen, random)
        chosen = changed if _is_object(changed) else chosen
    again: Pairs = [("args", ["/probe"]), ("cwd", "/"), ("env", ["A=2", "B=2"])]
    top = [(key, chosen + others if key == "process" else value) for key, value in top]
    if random.random() < 0.4:
        pair = (_another_key(random.choice(("process", "annotations")), random), again)
        top.insert(random.randrange(len(top) + 1), pair)
    return _text(top, random)


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _pairs(one)) for key, one in value.items()] or Raw(b"{}")
    return list(map(_pairs, value)) if isinstance(value, list) else value
