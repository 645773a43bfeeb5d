# SPDX-License-Identifier: Apache-2.0
"""What a turn of the device plugin tells people."""

from __future__ import annotations

from structlog.testing import capture_logs

from gpuhook.kubernetes.news import News
from gpuhook.kubernetes.offer.resources import Offer
from gpuhook.kubernetes.turn_news import TurnNews
from gpuhook.kubernetes.working_out import Outcome
from gpuhook.logs import logger
from tests.kubelet.plugin import resource

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
