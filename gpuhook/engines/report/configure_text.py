# SPDX-License-Identifier: Apache-2.0
"""What `gpuhook configure` prints: sentences, diffs and documents."""

from __future__ import annotations

from typing import Any

from gpuhook.engines.configure import changeset
from gpuhook.host.text_table import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.engines.configure.configure_engine import EngineResult
    from gpuhook.engines.configure.engine_plan import ConfigChange
    from gpuhook.engines.configure.engine_status import EngineStatus

SCHEMA = "gpuhook/configure/v1"
SHOWN_SCHEMA = "gpuhook/configure-show/v1"
HEADERS = ("ENGINE", "RUNTIME", "PROGRAM", "DEFAULT", "CDI", "CONFIGURED", "WHERE")
_MOST_NAMES = 5  # of containers
_BY_US, _BY_OTHERS = "by gpuhook", "by others"


def difference_text(writes: Iterable[ConfigChange]) -> str:
    """Return the diff as text; bytes that are not UTF-8 are replaced."""
    found = changeset.diff_text(writes)
    return found.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def sentences(result: EngineResult, command: str, *, is_dry: bool) -> Iterator[str]:
    """Yield the sentences on a run of `command`."""
    for write in result.writes:
        done = _action(write)
        yield f"would {done} {write.path} (dry run)" if is_dry else f"{_PAST[done]} {write.path}"
    if not result.writes:
        if not result.was_configured:
            yield f"{result.engine}: nothing to undo"
        elif command == "configure":
            yield f"{result.engine} is already configured"
        elif not is_dry:
            yield f"{result.engine}: the files are already restored"
    if result.verified:
        yield f"verified by `{result.verified}`"
    if result.restarted:
        yield result.restarted
    yield from result.notes
    if result.stored:
        names = ", ".join(one.name or one.id for one in result.stored[:_MOST_NAMES])
        more = ", ..." if len(result.stored) > _MOST_NAMES else ""
        created = counted(len(result.stored), "container was", "containers were")
        need = "needs" if len(result.stored) == 1 else "need"
        yield (
            f"{created} created with it and {need} it to restart: "
            f"{names}{more} (gpuhook configure users {result.engine})"
        )


_PAST = {"write": "wrote", "change": "changed", "remove": "removed"}


def _action(write: ConfigChange) -> str:
    if write.before is None:
        return "write"
    return "remove" if write.after is None else "change"


def document(result: EngineResult, command: str, *, is_dry: bool) -> dict[str, Any]:
    """Return the document of a run."""
    return {
        "schema": SCHEMA,
        "command": command,
        "engine": result.engine,
        "dryRun": is_dry,
        "changes": [
            {"path": one.path, "action": _action(one), "diff": difference_text((one,))}
            for one in result.writes
        ],
        "wasConfigured": result.was_configured,
        "verifiedBy": result.verified,
        "restarted": result.restarted,
        "notes": list(result.notes),
        "users": [one.id for one in result.stored],
    }


def lines(shown: EngineStatus) -> Iterator[tuple[str, ...]]:
    """Yield the rows of an engine: its GPU runtimes and hooks, else one row for CDI."""
    found = shown.reading.configuration
    has_cdi = "yes" if shown.reading.has_cdi else "no"
    by = _by(shown)
    runtimes = found.gpu_runtimes
    for one in runtimes:
        is_default = "yes" if found.default == one.name else "no"
        is_foreign = shown.is_readable and not (
            shown.record and one.name in shown.record.wanted.names
        )
        ours = _BY_OTHERS if is_foreign else by
        yield (shown.engine, one.name, one.path, is_default, has_cdi, ours, str(one.where))
    for hook in shown.reading.hooks:
        if hook.gives_gpus:
            yield (shown.engine, "-", hook.path, "-", has_cdi, by, hook.file)
    if not runtimes and not any(hook.gives_gpus for hook in shown.reading.hooks):
        files = found.files[-1] if found.files else "-"
        yield (shown.engine, "-", "-", "-", has_cdi, by if shown.record else "-", files)


def _by(shown: EngineStatus) -> str:
    if not shown.is_readable:
        return "unknown"
    return _BY_US if shown.record else _BY_OTHERS


def remarks(found: Iterable[EngineStatus]) -> Iterator[str]:
    """Yield the changes of files since they were written, and what only root can read."""
    for one in found:
        for path, state in one.files:
            if state != "as written":
                yield f"{path} is {state}"
        if not one.is_readable:
            yield f"{one.engine}: only root can read whether gpuhook has configured it"
        for trouble in one.reading.configuration.trouble:
            yield f"{trouble.where} {trouble.said}"


def shown_document(found: Iterable[EngineStatus]) -> dict[str, Any]:
    """Return the document of the engines' configurations."""
    return {"schema": SHOWN_SCHEMA, "engines": [_engine(one) for one in found]}


def _engine(shown: EngineStatus) -> dict[str, Any]:
    found = shown.reading.configuration
    return {
        "engine": shown.engine,
        "files": list(found.files),
        "default": found.default,
        "cdi": shown.reading.has_cdi,
        "runtimes": [
            {
                "name": one.name,
                "program": one.path,
                "givesGpus": one.gives_gpus,
                "where": str(one.where),
            }
            for one in found.runtimes.values()
        ],
        "hooks": [
            {"file": one.file, "program": one.path, "givesGpus": one.gives_gpus}
            for one in shown.reading.hooks
        ],
        "trouble": [{"where": str(one.where), "said": one.said} for one in found.trouble],
        "configured": _configured(shown),
    }


def _configured(shown: EngineStatus) -> dict[str, Any] | None:
    if shown.record is None:
        return None
    wanted = shown.record.wanted
    return {
        "route": wanted.route,
        "runtimeName": wanted.name,
        "runtimePath": wanted.program,
        "hookPath": wanted.hook,
        "isDefault": wanted.is_default,
        "isTakenUp": shown.record.is_taken_up,
        "files": [{"path": path, "state": state} for path, state in shown.files],
    }
