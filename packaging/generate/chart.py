# SPDX-License-Identifier: Apache-2.0
"""The version in the Helm chart: that of the package."""

from __future__ import annotations

import re
from pathlib import Path

from gpuhook import __version__

CHECKOUT = Path(__file__).parents[2]
_CHART = "packaging/helm/gpuhook/Chart.yaml"


def files() -> dict[str, str]:
    """Return the text of Chart.yaml by its path."""
    text = (CHECKOUT / _CHART).read_text(encoding="utf-8")
    line = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)
    return {_CHART: line.sub(rf"\1: {__version__}", text)}
