# SPDX-License-Identifier: Apache-2.0
"""The device classes that `gpuhook explain` and `dra lint` assume are those of the chart."""

from __future__ import annotations

from gpuhook.explain.claims.claim_manifests import default_classes
from tests.charts.rendering import rendered


def test_default_classes_are_those_of_the_chart() -> None:
    classes = [
        one
        for one in rendered(
            {
                "dra": {"enabled": True},
                "devicePlugin": {"enabled": False},
                "amd": {"nodes": "mixed"},
            }
        )
        if one["kind"] == "DeviceClass"
    ]
    chart = {
        (
            one["metadata"]["name"],
            one["spec"]["selectors"][0]["cel"]["expression"],
            one["spec"].get("extendedResourceName", ""),
        )
        for one in classes
    }
    assert chart == {
        (one.name, one.selectors[0].expression, one.extended_resource) for one in default_classes()
    }
