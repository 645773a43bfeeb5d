#!@PYTHON@ -IS
# SPDX-License-Identifier: Apache-2.0
"""Add gpuhook's prestart hook to the OCI spec on standard input.

    ctr oci spec | @SHARE@/containerd/base-spec --output /etc/containerd/gpuhook-base.json

A base_runtime_spec replaces containerd's default, which differs between versions. So derive it
from the default of the installed containerd.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import Any

sys.path[:0] = ["@LIB@"]
from gpuhook.host.hot import fastjson, files  # noqa: E402 # as it is installed

HOOK = "@SHARE@/hooks.d/gpuhook-prestart.json"
NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number"}


class SpecError(Exception):
    """Standard input is not an OCI spec. The message contains the place and the reason."""


def with_hook(spec: object, hook: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with the hook as its last prestart hook; SpecError for a malformed spec."""
    whole: dict[str, Any] = _expected(spec, dict, "the document")
    _expected(whole.get("ociVersion"), str, ".ociVersion")
    _expected(whole.get("process"), dict, ".process")
    hooks = _expected(_filled(whole, "hooks", {}), dict, ".hooks")
    stage = _expected(_filled(hooks, "prestart", []), list, ".hooks.prestart")
    for number, entry in enumerate(stage):
        _expected(entry, dict, f".hooks.prestart[{number}]")
    if hook not in stage:
        stage.append(hook)
    return whole


def _filled(held: dict[str, Any], key: str, default: object) -> object:
    """Return a member of an object. A missing member, or null, is set to `default` first."""
    if held.get(key) is None:
        held[key] = default
    return held[key]


def _expected(value: object, kind: type, place: str) -> Any:
    if not isinstance(value, kind):
        found = "nothing" if value is None else NAMES.get(type(value), "a number")
        raise SpecError(f"{place} must be {NAMES[kind]}, but is {found}")
    return value


def _given() -> object:
    """Return the document on standard input."""
    chunks = []
    while chunk := os.read(0, 1 << 20):
        chunks.append(chunk)
    raw = b"".join(chunks)
    if not raw.strip():
        raise SpecError("it is empty")
    try:
        return fastjson.loads(raw)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _replace(path: str, data: bytes) -> None:
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        sys.exit(f"base-spec: {path} is not a regular file: omit --output for standard output")
    files.replace(path, data, durable=True)


def _text(spec: dict[str, Any]) -> bytes:
    try:
        return json.dumps(spec, indent=4, allow_nan=False).encode() + b"\n"
    except RecursionError:
        raise SpecError("it is nested too deeply") from None
    except ValueError:
        raise SpecError("it has NaN or Infinity, which are not JSON numbers") from None


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="base-spec",
        description=f"{(__doc__ or '').splitlines()[0]}: `ctr oci spec` prints one.",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="replace FILE atomically; default: standard output"
    )
    output = parser.parse_args().output
    place = "standard input"
    try:
        given = _given()
        place = HOOK
        with open(HOOK, encoding="utf-8") as file:
            hook = json.load(file)["hook"]
        data = _text(with_hook(given, hook))
        place = output or "standard output"
        if output is None:
            files.write_whole(1, data)
        else:
            _replace(output, data)
    except SpecError as error:
        sys.exit(
            f"base-spec: standard input is not an OCI spec: {error} (`ctr oci spec` prints one)"
        )
    except OSError as error:
        sys.exit(f"base-spec: {place}: {error.strerror or error}")


if __name__ == "__main__":
    main()
