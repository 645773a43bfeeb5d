# SPDX-License-Identifier: Apache-2.0
"""Documents that commands read and print: JSON and YAML.

Reading is bounded in size. Printed text has no character that a terminal or an editor interprets
instead of showing it, such as U+202E, which reverses the text after it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STANDARD_INPUT = "standard input"
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")
LARGEST = 8 << 20  # bytes; a document of that size takes up to 450 MiB of memory


def read(path: str) -> bytes:
    """Return the content of a file ("-": standard input); raises as read_head(), and GH1316."""
    content = read_head(path, LARGEST + 1)
    if len(content) > LARGEST:
        where = STANDARD_INPUT if path == "-" else path
        raise fault("GH1316", path=where, limit=LARGEST >> 20)
    return content


def read_head(path: str, size: int) -> bytes:
    """Return up to `size` bytes of a file ("-": standard input).

    The file is a regular one, or a descriptor of this process, which may be a pipe: /dev/stdin, or
    the /dev/fd/63 of a shell's <(command). Raises OSError, and GH1310 for any other file: to open a
    FIFO waits for a writer, and to open a device may act on it.
    """
    if path == "-":
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", STANDARD_INPUT)
        return sys.stdin.buffer.read(size)
    is_own = path == "/dev/stdin" or path.startswith(_DESCRIPTORS)
    with open(path, "rb", opener=None if is_own else _open_regular) as stream:
        return stream.read(size)


def _open_regular(path: str, flags: int) -> int:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # open() itself refuses a directory
        raise fault("GH1310", path=path, limit="")
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def parse_json(content: bytes | str, **options: Any) -> Any:
    """Return the value of a JSON document; ValueError if it is not JSON or nested too deeply.

    `options` are those of json.loads.
    """
    try:
        return json.loads(content, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_json_object(content: bytes | str) -> dict[str, Any]:
    """Return the object of a JSON document; ValueError if it has another value, or is not JSON."""
    found = parse_json(content)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 # as for any other document
    return found


def json_text(value: object) -> str:
    """Return a value as indented JSON and a line break; ExactNumbers keep their text."""
    text = _json(value, ensure_ascii=False)
    return (text if _is_plain(text) else _json(value, ensure_ascii=True)) + "\n"


def _json(value: object, *, ensure_ascii: bool) -> str:
    numbers: list[str] = []
    mark = os.urandom(16).hex()  # json.dumps takes no text of a number, only another value

    def marked(number: object) -> str:
        if not isinstance(number, fastjson.ExactNumber):
            raise TypeError(f"{type(number).__name__} has no JSON form")
        numbers.append(number.text)
        return mark

    text = json.dumps(value, indent=2, ensure_ascii=ensure_ascii, default=marked)
    parts = text.split(f'"{mark}"')
    return "".join(part for pair in zip(parts, [*numbers, ""], strict=True) for part in pair)


def yaml_text(value: object, dumper: type[Any], **options: Any) -> str:
    """Return a value as YAML, its keys in their order; `options` are those of yaml.dump."""
    import yaml

    options |= {"Dumper": dumper, "sort_keys": False}
    text: str = yaml.dump(value, allow_unicode=True, **options)
    # A dumper escapes all that is not ASCII, or nothing that YAML allows.
    return text if _is_plain(text) else yaml.dump(value, allow_unicode=False, **options)


def _is_plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()
