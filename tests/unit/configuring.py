# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of engines: files in memory, and plans applied to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions, EnginePlan, engine

RUNTIME = "/usr/bin/gpuhook-runtime"
HOOK = "/usr/bin/gpuhook-prestart"
WRAPPER = EngineOptions("wrapper", "nvidia", RUNTIME, HOOK)


class Tree:
    """Files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        before = "/" if path == "/" else f"{path}/"
        below = {
            one[len(before) :].partition("/")[0] for one in self.files if one.startswith(before)
        }
        return sorted(below)


def wanted(**fields: Any) -> EngineOptions:
    """Return the default options with these fields."""
    return replace(WRAPPER, **fields)


def node(files: dict[str, bytes], **fields: Any) -> EngineNode:
    """Return a node that has these files."""
    return EngineNode(Tree(files), **fields)


def laid(files: dict[str, bytes], plan: EnginePlan) -> dict[str, bytes]:
    """Return the files after a plan; each file must have the plan's content before."""
    after = dict(files)
    for change in plan.changes:
        assert change.before == files.get(change.path), change.path
        assert change.before != change.after, change.path
        if change.after is None:
            del after[change.path]
        else:
            after[change.path] = change.after
    return after


def configured(name: str, files: dict[str, bytes], /, **fields: Any) -> dict[str, bytes]:
    """Return the files of a node after its engine is configured; a second run changes nothing."""
    about = {
        key: fields.pop(key) for key in tuple(fields) if key in EngineNode.__dataclass_fields__
    }
    what = wanted(**fields)
    after = laid(files, engine(name).plan(node(files, **about), what))
    again = engine(name).plan(node(after, **about), what)
    assert again.changes == (), again.changes
    return after


def undone(name: str, files: dict[str, bytes], /, **fields: Any) -> dict[str, bytes]:
    """Return the configured files without gpuhook's settings, as if they had been edited."""
    after = configured(name, files, **fields)
    what = wanted(
        **{key: one for key, one in fields.items() if key in EngineOptions.__dataclass_fields__}
    )
    for path in tuple(after):
        if after[path] != files.get(path):
            left = engine(name).without(path, after[path], what, files.get(path))
            if left is None:
                del after[path]
            else:
                after[path] = left
    return after
