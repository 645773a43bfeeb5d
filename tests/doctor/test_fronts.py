# SPDX-License-Identifier: Apache-2.0
"""If gpuhook provides the names of NVIDIA's toolkit, doctor does not report a toolkit."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.check import FAILED, WARNING
from gpuhook.doctor.checks.installation.programs import FRONTS
from tests.doctor.case import FaultCase, is_root
from tests.doctor.parts.engines import DEFAULTS, TOOLKIT, programs
from tests.doctor.parts.gpuhook import BIN, filled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")


@pytest.fixture
def case(fresh: Callable[[str], FaultCase]) -> FaultCase:
    """Return a node whose toolkit packages were replaced; their settings remain."""
    made = fresh("t4")
    made.remove(f"{BIN}/nvidia-container-cli")
    for name in FRONTS:
        made.write(f"{BIN}/{name}", filled(name), 0o755)
    programs(made).pop("nvidia-ctk")  # versions of fronts are not asked for
    made.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "wrong"'))
    return made


def wrong(case: FaultCase) -> list[tuple[str, str]]:
    found = case.examine()
    return [(r.check.id, r.finding.subject) for r in (*found.of(FAILED), *found.of(WARNING))]


def test_all_is_well(case: FaultCase) -> None:
    assert wrong(case) == []


def test_settings_count_where_the_toolkit_is_nvidias(case: FaultCase) -> None:
    case.write(f"{BIN}/nvidia-container-runtime", "\x7fELF", 0o755)
    assert ("nvidia-toolkit.values", "nvidia-container-runtime.mode") in wrong(case)


def test_a_front_of_another_version_is_told(case: FaultCase) -> None:
    library = "/usr/lib/gpuhook-old"
    for name in ("gpuhook_bundle.py", "gpuhook_os.py"):
        case.write(f"{library}/{name}", "")
    case.write(f"{library}/gpuhook/__init__.py", '__version__ = "0.0.1"\n')
    name = "nvidia-container-runtime"
    case.write(f"{BIN}/{name}", filled(name, LIB=library), 0o755)
    assert [check for check, _ in wrong(case)] == ["installation.versions"]
