# SPDX-License-Identifier: Apache-2.0
"""If gpuhook provides the programs of NVIDIA's toolkit, doctor does not report a toolkit."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.checks.installation.programs import FRONTS
from gpuhook.node_facts.check import FAILED, WARNING
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
    programs(made).pop("nvidia-ctk")  # doctor does not run gpuhook's programs for their version
    made.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "wrong"'))
    return made


def findings(case: FaultCase) -> list[tuple[str, str]]:
    examination = case.examine()
    return [
        (r.check.id, r.finding.subject) for r in (*examination.of(FAILED), *examination.of(WARNING))
    ]


def test_no_finding(case: FaultCase) -> None:
    assert findings(case) == []


def test_toolkit_settings_apply_to_nvidias_runtime(case: FaultCase) -> None:
    case.write(f"{BIN}/nvidia-container-runtime", "\x7fELF", 0o755)
    assert ("nvidia-toolkit.values", "nvidia-container-runtime.mode") in findings(case)


def test_program_of_another_version_is_reported(case: FaultCase) -> None:
    library = "/usr/lib/gpuhook-old"
    for name in ("gpuhook_bundle.py", "gpuhook_os.py"):
        case.write(f"{library}/{name}", "")
    case.write(f"{library}/gpuhook/__init__.py", '__version__ = "0.0.1"\n')
    name = "nvidia-container-runtime"
    case.write(f"{BIN}/{name}", filled(name, LIB=library), 0o755)
    assert [check for check, _ in findings(case)] == ["installation.versions"]
