# SPDX-License-Identifier: Apache-2.0
"""Memory limits of a container's cgroups: set in the driver, with the ledger's records.

All hooks use this module. A child process for each vendor calls the driver: if the driver hangs or
its library crashes, the container loses that vendor's limits, and the hook goes on.
"""

from __future__ import annotations

import os
import time

from gpuhook.errors import GpuhookError, fault, rebuild
from gpuhook.host.hot import fastjson, files, settings
from gpuhook.host.warm import child_process
from gpuhook.memory_limits.warm import memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord, is_limited
from gpuhook.request.memory_request import MemoryLimit
from gpuhook.vendors.hot.memory_vendors import by_vendor, vendor_of
from gpuhook.vendors.warm.limit_drivers import open_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.vendors.interfaces.memory_interface import LimitDriver

    Answer = list[dict[str, Any]]

_SIGKILL = 9
_REFUSED = ("GH1251", "GH2543", "GH2544")  # this limit, and perhaps not another
SECONDS = 20.0  # for all limits of a container


def apply(
    limits: list[MemoryLimit],
    library: Callable[[], str],
    directories: list[str],
    reported: list[GpuhookError] | None = None,
    *,
    guarantee: str = settings.AUTO,
    grants: Iterable[MemoryLimit] = (),
) -> list[dict[str, Any]]:
    """Set `limits` for the cgroups in `directories`; return the ledger's `memory` of them.

    `library` is that of open_driver(), `guarantee` is the setting limits.guarantee. A
    hard limit above a GPU's memory becomes that. Of `grants`, which a container has narrowed to its
    limits, one is set in place of a limit that the driver refuses. A device's error is the
    `trouble` of its record and is added to `reported`; nothing is raised. GH1256 is a driver
    without an answer in SECONDS, GH1257 a library that crashes, GH1258 a host that cannot start a
    process.
    """
    wider = {grant.device: grant for grant in grants}

    def vendor_answers(domain: str, own: list[MemoryLimit]) -> Answer:
        work = lambda: _set_all(domain, own, library, directories, guarantee, wider)  # noqa: E731
        try:
            return _answers(work)
        except GpuhookError as error:
            return [_failure(error)] * len(own)

    answers: dict[str, dict[str, Any]] = {}
    for domain, own in by_vendor(limits).items():
        answers.update(zip([limit.device for limit in own], vendor_answers(domain, own)))
    records = []
    for limit in limits:
        answer = answers[limit.device]
        failure = _fault_of(answer)
        if failure is not None and reported is not None:
            reported.append(failure)
        records.append(_record(limit, failure, answer).document())
    return records


def set_or_report(
    limits: list[MemoryLimit],
    library: Callable[[], str],
    directories: Callable[[], list[str]],
    reported: list[GpuhookError],
    guarantee: str = settings.AUTO,
    *,
    grants: Iterable[MemoryLimit] = (),
) -> list[dict[str, Any]]:
    """Return what apply() returns; also reports what `directories` raises."""
    try:
        own = directories()
    except (GpuhookError, OSError) as error:
        known = error if isinstance(error, GpuhookError) else _of_system(error)
        reported.append(known)
        return [refused(limit, known).document() for limit in limits]
    return apply(limits, library, own, reported, guarantee=guarantee, grants=grants)


def _of_system(error: OSError) -> GpuhookError:
    where = f"{error.filename}: " if error.filename else ""
    return fault("GH1313", reason=f"{where}{error.strerror or error}")


def refused(limit: MemoryLimit, error: GpuhookError) -> LimitRecord:
    """Return the record of a limit that the driver does not enforce, because of `error`."""
    record = LimitRecord(limit, limit)
    record.fail(error, [])
    return record


def _record(limit: MemoryLimit, error: GpuhookError | None, answer: dict[str, Any]) -> LimitRecord:
    """Return the ledger's record of a limit as it was set, which may be without its guarantee.

    If the grant was set instead, the record is that one, with the reason.
    """
    if error is not None and "hard" not in answer:
        return refused(limit, error)
    if error is not None:
        limit = MemoryLimit(limit.device, answer["hard"], answer["soft"], is_asked=limit.is_asked)
    limit, reason = with_hard(limit, answer["hard"]), answer["guarantee"]
    now = memory_backend.without_guarantee(limit) if reason else limit
    record = LimitRecord(now, limit, reason)
    record.cgroups = answer["cgroups"]
    record.trouble = f"{error.code}: {error.message}" if error is not None else ""
    return record


def judge(
    records: Iterable[dict[str, Any]],
    faults: list[GpuhookError],
    log: EngineLog,
    *,
    required: bool,
) -> None:
    """Raise the first of `faults` if limits are required; else warn: GH1647, GH1648."""
    if faults and required:
        raise faults[0]
    for one in records:
        if one["trouble"] and one["by"]:
            variable = vendor_of(one["device"]).vocabulary.memory_limit_env
            values = {"device": one["device"], "trouble": one["trouble"], "variable": variable}
            log.warning(fault("GH1648", **values))
        elif one["trouble"]:
            log.warning(fault("GH1647", device=one["device"], trouble=one["trouble"]))


def _set_all(  # noqa: PLR0917 # as apply()
    domain: str,
    limits: list[MemoryLimit],
    library: Callable[[], str],
    directories: list[str],
    guarantee: str,
    wider: dict[str, MemoryLimit],
) -> Answer:
    """Return for each limit the values that were set, or the words of a fault, or both."""
    answers = []
    driver = open_driver(domain, library)
    try:
        for limit in limits:
            answer = _set(driver, limit, directories, guarantee)
            grant = wider.get(limit.device)
            if grant is not None and answer.get("error", [""])[0] in _REFUSED:
                answer = {**_set(driver, grant, directories, guarantee), **answer}
            answers.append(answer)
    finally:
        driver.close()
    return answers


def _set(
    driver: LimitDriver, limit: MemoryLimit, directories: list[str], guarantee: str
) -> dict[str, Any]:
    try:
        limit = with_hard(limit, driver.within(limit.device, limit.hard))
        backend = driver.backend(limit.device, directories[-1])
        kept, reason = memory_backend.supported_limit(limit, guarantee, backend)
        chosen = memory_backend.to_limit(backend, directories) if is_limited(kept) else []
        for directory in chosen:
            driver.set(kept.device, directory, kept.hard, kept.soft)
    except GpuhookError as error:
        return _failure(error)
    return {"hard": limit.hard, "soft": limit.soft, "cgroups": chosen, "guarantee": reason}


def with_hard(limit: MemoryLimit, hard: int) -> MemoryLimit:
    """Return `limit` with this hard limit; unchanged if more is guaranteed: that is refused."""
    if limit.soft > hard:
        return limit
    return MemoryLimit(limit.device, hard, limit.soft, is_asked=limit.is_asked)


def _failure(error: GpuhookError) -> dict[str, Any]:
    return {"error": [error.code, error.message, error.hint]}


def _fault_of(answer: dict[str, Any]) -> GpuhookError | None:
    if "error" not in answer:
        return None
    return rebuild(*answer["error"])


def _answers(work: Callable[[], Answer]) -> Answer:
    """Return what `work` returns in a child process; raises its faults, GH1256 to GH1258."""
    reader, writer = os.pipe()
    end = time.monotonic() + SECONDS
    try:
        pid = child_process.fork(lambda: _send(work, writer), writer)
    except OSError as error:
        os.close(reader)
        raise fault("GH1258", reason=error.strerror) from error
    finally:
        os.close(writer)
    try:
        text, is_whole = child_process.read_until(reader, end)
    finally:
        os.close(reader)
    if not is_whole:
        os.kill(pid, _SIGKILL)
        raise fault("GH1256", seconds=f"{SECONDS:g}")
    status = os.waitpid(pid, 0)[1]
    try:
        document: Any = fastjson.loads(text)
    except ValueError:
        signalled = os.WIFSIGNALED(status)
        number = os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
        how = f"signal {number}" if signalled else f"status {number}"
        raise fault("GH1257", reason=f"it ended with {how}") from None
    if "crash" in document:
        raise fault("GH1257", reason=document["crash"])
    failed = _fault_of(document)
    if failed is not None:
        raise failed
    answers: Answer = document["answers"]
    return answers


def _send(work: Callable[[], Answer], writer: int) -> None:
    """Write what `work` returns, or its error, as JSON; in the child."""
    try:
        document: dict[str, Any] = {"answers": work()}
    except GpuhookError as error:
        document = _failure(error)
    except Exception as error:  # the parent reports it
        document = {"crash": f"{type(error).__name__}: {error}"}
    files.write_whole(writer, fastjson.dumps(document))
