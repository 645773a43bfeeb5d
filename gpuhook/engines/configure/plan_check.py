# SPDX-License-Identifier: Apache-2.0
"""A plan is checked before anything is written: read as the engine would read its result."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.engines.configure import engine_reader
from gpuhook.engines.configure.overlay_files import Replaced
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.engine_options import EngineNode
    from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration


def require(plan: EnginePlan, node: EngineNode) -> None:
    """Raise GH2003 where the engine would not start, GH2004 where it would not do what is wanted.

    `node` has the files that the plan was made from. Raises OSError.
    """
    files = Replaced(node.files, {one.path: one.after for one in plan.changes})
    after = replace(node, files=files, config=plan.config or node.config)
    if not is_read(plan, after):
        return
    said = engine_reader.read(plan.engine, after)
    for trouble in said.configuration.fatal:
        raise fault("GH2003", where=trouble.where, said=trouble.said, engine=plan.engine)
    for lack in lacks(plan.expected, said, files):
        paths = ", ".join(one.path for one in plan.changes) or "its files"
        raise fault("GH2004", engine=plan.engine, lack=lack, paths=paths)


def is_read(plan: EnginePlan, node: EngineNode) -> bool:
    """Return whether a node's engine reads any file of a plan; raises OSError.

    It does if the plan names its configuration, or changes nothing.
    """
    if plan.config or not plan.changes:
        return plan.config is not None
    said = engine_reader.read(plan.engine, node)
    read = {*said.configuration.files, *(one.file for one in said.hooks)}
    return any(change.path in read for change in plan.changes)


def lacks(
    expected: ExpectedConfig, said: engine_reader.Said, files: ConfigFiles | None = None
) -> Iterator[str]:
    """Yield, in words, what is expected of a configuration and is not in it.

    Hooks are looked for among those that the engine reads, or in `files`; not at all without them.
    """
    yield from unregistered(expected, said.configuration)
    if expected.has_cdi and not said.has_cdi:
        yield "give CDI devices to containers"
    hooks = {one.file for one in said.hooks if not one.reason}
    for path in expected.hooks if files is not None else ():
        if path not in hooks and (said.hooks or files is None or files.read(path) is None):
            yield f"read the hook {path}"


def unregistered(expected: ExpectedConfig, found: EngineConfiguration) -> Iterator[str]:
    """Yield, in words, what is wrong about the runtimes of a configuration."""
    for name, program in expected.runtimes.items():
        runtime = found.runtimes.get(name)
        if runtime is None:
            yield f"have a runtime {name}"
        elif program and runtime.path != program:
            there = runtime.path or "its own program"
            yield f"run {program} as its runtime {name}, but {there} ({runtime.where})"
    if expected.default and found.default != expected.default:
        yield f"take {expected.default} as its default runtime, but {found.default}"
