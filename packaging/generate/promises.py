# SPDX-License-Identifier: Apache-2.0
"""The promises of docs/concepts/security.md, each with the tests that drive it."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

import yaml

from generate.pages import CHECKOUT, page, table_row

PAGE = "docs/concepts/security.md"
SOURCE = CHECKOUT / "docs/concepts/promises.yaml"
_HEAD = """\
## Measures

`make generate` writes this section from [promises.yaml](promises.yaml), and refuses a promise
without a test. Paths of tests are below `tests/`.

| threat | measure | test |
|---|---|---|
"""
_VULNERABILITIES = """
## Known vulnerabilities of this kind of software

Vulnerabilities of NVIDIA's container toolkit and of runc, and why gpuhook does not have them:

| CVE | vulnerability | gpuhook | test |
|---|---|---|---|
"""
_FOOT = """
If NVIDIA's own stack remains on the node, gpuhook does not change it: `gpuhook doctor` checks its
configuration.
"""


def files() -> dict[str, str]:
    """Return the page with its current tables, by its path in the checkout.

    Raises ValueError for a promise whose test does not exist.
    """
    source = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    text = _HEAD + _rows(source["measures"], "threat", "measure")
    text += _VULNERABILITIES + _rows(source["vulnerabilities"], "id", "vulnerability", "gpuhook")
    return page(PAGE, text + _FOOT)


def _rows(promises: list[dict[str, Any]], *keys: str) -> str:
    """Return a row for each promise: the columns of these keys, then its tests."""
    return "".join(
        table_row(*(one[key] for key in keys), _tests(one[keys[0]], one["tests"])) + "\n"
        for one in promises
    )


def _tests(promise: str, names: list[str]) -> str:
    """Return the cell of the tests; each is a file below tests, or `file::function`."""
    if not names:
        raise ValueError(f"{SOURCE}: {promise!r} has no test")
    for name in names:
        path, _, function = name.partition("::")
        if function not in _functions(path):
            raise ValueError(f"{SOURCE}: {promise!r}: there is no test {name}")
    return ", ".join(f"`{name}`" for name in names)


@cache
def _functions(path: str) -> set[str]:
    """Return the functions of a file of tests, and "" for the whole file."""
    source = CHECKOUT / "tests" / path
    if not source.is_file():
        return set()
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {"", *(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))}
