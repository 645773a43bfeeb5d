# SPDX-License-Identifier: Apache-2.0
"""Processes and their containers, if the cgroup path has no container id."""

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
WEB, JOB = (10, 100), (20, 200)  # pid and start time


def scope(path: str, mounts: int) -> ProcessScope:
    return ProcessScope((("", path),), (4, mounts))


def about(path: str, mounts: int, started: int = 100) -> ProcessFacts:
    return ProcessFacts(started, cgroup_names.parse(f"0::{path}".encode()), scope(path, mounts))


class Kernel(Processes):
    """Processes with invented facts."""

    def __init__(self, **found: ProcessFacts) -> None:
        self.found = {int(name[1:]): one for name, one in found.items()}
        self.is_open = True

    def about(self, pid: int) -> ProcessFacts | None:
        return self.found.get(pid)

    def host_mounts(self) -> frozenset[tuple[int, int]] | None:
        return frozenset({HOST}) if self.is_open else None


def scopes(kernel: Processes, firsts: dict[str, FirstProcess]) -> dict[str, ProcessScope]:
    return container_scopes(first_processes(kernel, firsts))


def container_of(one: ProcessFacts, known: dict[str, ProcessScope]) -> str | None:
    return process_container(one, set(known), known)


def test_process_with_the_cgroup_and_mounts_of_a_container_belongs_to_it() -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    assert known == {"web": scope("/apps/gpu", 7)}
    assert container_of(about("/apps/gpu", 7), known) == "web"
    assert container_of(about("/apps/gpu/below", 7), known) == "web"


@pytest.mark.parametrize(
    ("path", "mounts"),
    [
        ("/apps/gpu", 8),  # another, unknown container in the same cgroup
        ("/apps/gpu", HOST[1]),  # a process on the host that was moved there
        ("/apps", 7),  # a process that entered the container's mount namespace from another cgroup
        ("/apps/gpu2", 7),
        ("/", 7),
    ],
)
def test_process_with_another_cgroup_or_other_mounts_does_not_belong(
    path: str, mounts: int
) -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    assert container_of(about(path, mounts), known) is None
    assert container_of(replace(about(path, mounts), scope=None), known) is None


def test_container_id_in_the_cgroup_path_takes_precedence() -> None:
    known = scopes(Kernel(p10=about("/apps/gpu", 7)), {"web": WEB})
    other = "ab" * 32
    assert container_of(about(f"/apps/gpu/{other}", 7), known) == other


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("/apps/gpu", 7), ("/apps/gpu", 8)),
        (("/apps/gpu", 7), ("/apps/gpu/below", 8)),
        (("/apps/gpu/below", 7), ("/apps/gpu", 8)),
        (("/apps/gpu", 7), ("/apps/other", 7)),
    ],
)
def test_scope_shared_by_two_containers_is_ignored(
    mine: tuple[str, int], theirs: tuple[str, int]
) -> None:
    kernel = Kernel(p10=about(*mine), p20=about(*theirs, 200))
    assert scopes(kernel, {"web": WEB, "job": JOB}) == {}
    assert scopes(kernel, {"web": WEB}).keys() == {"web"}
    apart = Kernel(p10=about("/apps/a", 7), p20=about("/apps/b", 8, 200))
    assert scopes(apart, {"web": WEB, "job": JOB}).keys() == {"web", "job"}


def test_invalid_first_process_is_ignored() -> None:
    """It has exited, its pid is reused, it has the host's mounts, or it cannot be read."""
    assert scopes(Kernel(), {"web": WEB}) == {}
    assert scopes(Kernel(p10=about("/apps/gpu", 7, 101)), {"web": WEB}) == {}
    assert scopes(Kernel(p10=about("/apps/gpu", HOST[1])), {"web": WEB}) == {}
    assert scopes(Kernel(p10=replace(about("/a", 7), scope=None)), {"web": WEB}) == {}
    closed = Kernel(p10=about("/apps/gpu", 7))
    closed.is_open = False
    assert scopes(closed, {"web": WEB}) == {}


def test_root_cgroup_belongs_to_no_container() -> None:
    known = scopes(Kernel(p10=about("/", 7)), {"web": WEB})
    assert container_of(about("/system.slice/sshd.service", 7), known) is None


def test_all_cgroup_v1_hierarchies_are_compared() -> None:
    one = ProcessScope(scope_cgroups(b"4:devices:/a/gpu\n0::/\n"), (4, 7))
    for content, holds in (
        ("0::/\n4:devices:/a/gpu\n", True),
        ("0::/x\n4:devices:/a/gpu/x\n", True),
        ("0::/\n4:devices:/a\n", False),
        ("0::/\n", False),
    ):
        assert one.holds(ProcessScope(scope_cgroups(content.encode()), (4, 7))) is holds


def test_id_of_two_containers_has_no_first_process() -> None:
    entries = [LedgerLimits("web", ("", "", "web"), {}, first=one) for one in (WEB, JOB)]
    (found,) = ledger_limits.unambiguous(entries)
    assert found.first is None


def test_process_with_the_host_mounts_makes_no_scope() -> None:
    """The test process is a process on the host for the guard."""
    kernel = Processes()
    ours = kernel.about(os.getpid())
    assert ours is not None
    assert ours.scope is not None
    assert ours.scope.mounts in (kernel.host_mounts() or ())
    assert scopes(kernel, {KILL: (os.getpid(), ours.started)}) == {}
