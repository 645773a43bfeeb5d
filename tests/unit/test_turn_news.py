# SPDX-License-Identifier: Apache-2.0
"""What a turn of the device plugin tells people."""

from __future__ import annotations

from structlog.testing import capture_logs

from gpuhook.kubernetes.config.configuration import MEMORY_UNITS, SharedResource
from gpuhook.kubernetes.news import News
from gpuhook.kubernetes.offer.resources import Offer
from gpuhook.kubernetes.turn_news import TurnNews
from gpuhook.kubernetes.working_out import Outcome
from gpuhook.logs import logger
from tests.kubelet.plugin import resource
from tests.unit.offering import GPU, T4, offer

OFFER = Offer((resource(),), ())


def test_spec_that_was_written_is_told_and_a_warning_only_once() -> None:
    with capture_logs() as lines:
        told = TurnNews(News(logger()), "/none")
        told.worked_out(Outcome(OFFER, warnings=("a doubt",), written=("/var/run/cdi/a.json",)))
        told.worked_out(Outcome(OFFER, warnings=("a doubt", "another")))
    assert [(line["log_level"], line["event"], line.get("path")) for line in lines] == [
        ("warning", "a doubt", None),
        ("info", "CDI spec written", "/var/run/cdi/a.json"),
        ("warning", "another", None),
    ]


def test_units_of_another_size_are_told_once() -> None:
    def offered(size: int) -> Outcome:
        entry = SharedResource(GPU, rename="nvidia.com/gpumem", unit=size)
        return Outcome(offer(T4, entry, strategy=MEMORY_UNITS))

    with capture_logs() as lines:
        told = TurnNews(News(logger()), "/none")
        for size in (1 << 30, 1 << 30, 512 << 20, 512 << 20):
            told.worked_out(offered(size))
    (line,) = lines
    assert line["reason"] == "UnitsResized"
    assert "a unit of nvidia.com/gpumem is 512 MiB now, and was 1024 MiB" in line["event"]
