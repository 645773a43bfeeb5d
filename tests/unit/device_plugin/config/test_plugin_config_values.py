# SPDX-License-Identifier: Apache-2.0
"""The value types of the device plugin's configuration."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.config.grammar.memory_values import AMOUNT
from gpuhook.device_plugin.config.grammar.name_values import (
    Address,
    Channels,
    DeviceNames,
    ResourceName,
    Xids,
)
from gpuhook.device_plugin.config.grammar.value_kinds import (
    PATH,
    Boolean,
    ChoiceList,
    Duration,
    UnfitError,
    ValueKind,
)
from gpuhook.device_plugin.config.plugin_options import OPTIONS

DURATION = Duration(may_be_infinite=True)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_has_the_spellings_of_go(text: str) -> None:
    """strconv.ParseBool accepts these spellings."""
    assert Boolean().parse_text(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_has_the_spellings_of_go(text: str) -> None:
    """strconv.ParseBool accepts these spellings."""
    assert Boolean().parse_text(text) is False


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("60s", 60.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("500ms", 0.5),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("200000µs", 0.2),
        (60_000_000_000, 60.0),
        ("infinite", None),
    ],
)
def test_durations_have_the_forms_of_go(value: object, seconds: float | None) -> None:
    """Integers are nanoseconds; the printed form is read back."""
    assert DURATION.parse(value) == seconds
    assert DURATION.parse(DURATION.plain(seconds)) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "s", "1", "-1s", "1 s", "1d", "1s2", True, None, 1.5, [], "1ms", 5, "9" * 20 + "h", 2**63],
)
def test_invalid_duration_is_refused(value: object) -> None:
    with pytest.raises(UnfitError):
        DURATION.parse(value)


def test_infinite_is_accepted_for_some_durations_only() -> None:
    """A number can be a text."""
    with pytest.raises(UnfitError, match="must be a duration, found"):
        Duration().parse("infinite")
    assert Duration().parse_text("1000000000") == 1.0


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        ("512Mi", 512 << 20),
        ("1Gi", 1 << 30),
        ("1.5G", 1_500_000_000),
        ("2k", 2000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("0.5", 1),
        (4096, 4096),
    ],
)
def test_quantities_have_the_forms_of_kubernetes(value: object, count: int) -> None:
    """Parts of a byte round up."""
    assert AMOUNT.parse(value) == count


@pytest.mark.parametrize("value", ["", "-1", "1 Gi", "1GiB", "1e99", "100E", True, None, -1, 0.5])
def test_invalid_quantity_is_refused(value: object) -> None:
    with pytest.raises(UnfitError):
        AMOUNT.parse(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ChoiceList(("a", "b")), " b, a,b", ("b", "a")),
        (Xids(), "79, 48", frozenset({79, 48})),
        (Xids(may_be_all=True), "79,xids", "all"),
        (Channels(), "0", (0,)),
        (Channels(), "", ()),
        (DeviceNames(), "0,GPU-1, Tesla T4", ("0", "GPU-1", "Tesla T4")),
        (Address(), "[::1]:9395", "[::1]:9395"),
        (Address(), ":80", ":80"),
        (PATH, "/a b", "/a b"),
        (ResourceName(), "mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me"),
    ],
)
def test_text_of_an_option_is_converted(kind: ValueKind, text: str, value: object) -> None:
    """A list is a text with commas."""
    assert kind.parse_text(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ChoiceList(("a", "b")), ""),
        (ChoiceList(("a", "b")), "a,c"),
        (Xids(), "all"),
        (Xids(), "0"),
        (Xids(), "\u0667\u0669"),  # 79 in Arabic digits
        (Channels(), "1"),
        (Channels(), "x"),
        (Address(), "localhost:99999"),
        (Address(), "a b:1"),
        (PATH, "/a\nb"),
        (ResourceName(), "GPU"),
        (ResourceName(), ""),
        (ResourceName(), "nvidia.com/"),
    ],
)
def test_invalid_text_of_an_option_is_refused(kind: ValueKind, text: str) -> None:
    with pytest.raises(UnfitError):
        kind.parse_text(text)


@pytest.mark.parametrize("kind", [*(option.kind for option in OPTIONS), ResourceName()])
def test_message_does_not_repeat_a_long_text(kind: ValueKind) -> None:
    for text in ("x" * 100_000 + "/!\n", "9" * 100_000 + "\n"):
        try:
            kind.parse_text(text)
        except UnfitError as error:
            text_of_error = error.message + error.hint
        else:
            text_of_error = ""
        assert len(text_of_error) < 400


@pytest.mark.parametrize(
    ("health", "xid", "rule"),
    [
        (Health(), 79, None),
        (Health(critical_xids=frozenset({48})), 48, True),
        (Health(critical_xids=frozenset({48})), 79, False),
        (Health(ignored_xids=frozenset({79})), 79, False),
        (Health(ignored_xids=frozenset({79})), 48, None),
        (Health(ignored_xids="all"), 79, False),
        (Health(ignored_xids="all", enabled_xids=frozenset({79})), 79, True),
        (Health(ignored_xids="all", enabled_xids=frozenset({79})), 48, False),
        (Health(ignored_xids=frozenset({79}), enabled_xids=frozenset({79})), 79, True),
        (Health(enabled_xids="all"), 13, True),
    ],
)
def test_enabled_xids_take_precedence_over_ignored_and_critical(
    health: Health, xid: int, rule: bool | None
) -> None:
    assert health.rule(xid) is rule
