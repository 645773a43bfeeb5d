# SPDX-License-Identifier: Apache-2.0
"""Containers whose cgroup is not called like them: by their first process, and never by half."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.gpuhook_section import KILL
from gpuhook.device_plugin.guard import ledger_limits
from gpuhook.device_plugin.guard.container_processes import (
    FirstProcess,
    Processes,
    ProcessFacts,
    ProcessScope,
    container_scopes,
    first_processes,
    process_container,
    scope_cgroups,
)
from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits
from gpuhook.device_plugin.metrics import cgroup_names

HOST = (4, 1)
WEB, JOB = (10, 100), (20, 200)  # pids, and when they started


def home(path: str, mounts: int) -> ProcessScope:
    return ProcessScope((("", path),), (4, mounts))


def about(path: str, mounts: int, started: int = 100) -> ProcessFacts:
    return ProcessFacts(started, cgroup_names.parse(f"0::{path}".encode()), home(path, mounts))


class Kernel(Processes):
    """Processes that a test makes up."""

    def __init__(self, **found: ProcessFacts) -> None:
        self.found = {int(name[1:]): one for name, one in found.items()}
        self.is_open = True

    def about(self, pid: int) -> ProcessFacts | None:
        return self.found.get(pid)

    def host_mounts(self) -> frozenset[tuple[int, int]] | None:
        return frozenset({HOST}) if self.is_open else None


def scopes(kernel: Processes, firsts: dict[str, FirstProcess]) -> dict[str, ProcessScope]:
    return container_scopes(first_processes(kernel, firsts))


def whose(one: ProcessFacts, known: dict[str, ProcessScope]) -> str | None:
    return process_container(one, set(known), known)


def test_a_process_of_the_containers_cgroups_that_sees_its_mounts() -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    assert known == {"web": home("/apps/gpu", 7)}
    assert whose(about("/apps/gpu", 7), known) == "web"
    assert whose(about("/apps/gpu/below", 7), known) == "web"


@pytest.mark.parametrize(
    ("path", "mounts"),
    [
        ("/apps/gpu", 8),  # another, unknown container in the same cgroup
        ("/apps/gpu", HOST[1]),  # a process of the host that was moved there
        ("/apps", 7),  # who has gone into the container's mounts from elsewhere
        ("/apps/gpu2", 7),
        ("/", 7),
    ],
)
def test_whoever_else_is_there_is_not_of_the_container(path: str, mounts: int) -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    assert whose(about(path, mounts), known) is None
    assert whose(replace(about(path, mounts), scope=None), known) is None


def test_what_a_cgroup_is_called_counts_first() -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    other = "ab" * 32
    assert whose(about(f"/apps/gpu/{other}", 7), known) == other


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("/apps/gpu", 7), ("/apps/gpu", 8)),
        (("/apps/gpu", 7), ("/apps/gpu/below", 8)),
        (("/apps/gpu/below", 7), ("/apps/gpu", 8)),
        (("/apps/gpu", 7), ("/apps/other", 7)),
    ],
)
def test_what_two_containers_share_is_nobodys(
    mine: tuple[str, int], theirs: tuple[str, int]
) -> None:
    kernel = Kernel(p10=about(*mine), p20=about(*theirs, 200))
    assert scopes(kernel, {"web": WEB, "job": JOB}) == {}
    assert scopes(kernel, {"web": WEB}).keys() == {"web"}
    apart = Kernel(p10=about("/apps/a", 7), p20=about("/apps/b", 8, 200))
    assert scopes(apart, {"web": WEB, "job": JOB}).keys() == {"web", "job"}


def test_a_first_process_that_is_none() -> None:
    """It has ended, its pid is another's, it is the host's, or it may not be looked at."""
    assert scopes(Kernel(), {"web": WEB}) == {}
    assert scopes(Kernel(p10=about("/apps/gpu", 7, 101)), {"web": WEB}) == {}
    assert scopes(Kernel(p10=about("/apps/gpu", HOST[1])), {"web": WEB}) == {}
    assert scopes(Kernel(p10=replace(about("/a", 7), scope=None)), {"web": WEB}) == {}
    closed = Kernel(p10=about("/apps/gpu", 7))
    closed.is_open = False
    assert scopes(closed, {"web": WEB}) == {}


def test_the_root_of_the_hierarchy_is_nobodys() -> None:
    known = scopes(Kernel(p10=about("/", 7)), {"web": WEB})
    assert whose(about("/system.slice/sshd.service", 7), known) is None


def test_hierarchies_of_version_1_count_all_of_them() -> None:
    one = ProcessScope(scope_cgroups(b"4:devices:/a/gpu\n0::/\n"), (4, 7))
    for content, holds in (
        ("0::/\n4:devices:/a/gpu\n", True),
        ("0::/x\n4:devices:/a/gpu/x\n", True),
        ("0::/\n4:devices:/a\n", False),
        ("0::/\n", False),
    ):
        assert one.holds(ProcessScope(scope_cgroups(content.encode()), (4, 7))) is holds


def test_an_id_that_two_containers_have_has_no_first_process() -> None:
    entries = [LedgerLimits("web", ("", "", "web"), {}, first=one) for one in (WEB, JOB)]
    (found,) = ledger_limits.unambiguous(entries)
    assert found.first is None


def test_the_processes_of_this_machine() -> None:
    """Ours are the host's, as far as the guard is concerned: no container is made of them."""
    kernel = Processes()
    ours = kernel.about(os.getpid())
    assert ours is not None
    assert ours.scope is not None
    assert ours.scope.mounts in (kernel.host_mounts() or ())
    assert scopes(kernel, {KILL: (os.getpid(), ours.started)}) == {}
