# SPDX-License-Identifier: Apache-2.0
"""A vendor of GPUs, as commands and services use it. catalogue.py has the vendors."""

from __future__ import annotations

from typing import Protocol

from gpuhook.vendors.interfaces.doctor_interface import DoctorVendor
from gpuhook.vendors.interfaces.dra_interface import DraVendor
from gpuhook.vendors.interfaces.inventory_interface import InventoryVendor
from gpuhook.vendors.interfaces.memory_interface import LimitVendor
from gpuhook.vendors.interfaces.plugin_interface import PluginVendor
from gpuhook.vendors.interfaces.request_interface import RequestVendor
from gpuhook.vendors.interfaces.spec_interface import SpecVendor
from gpuhook.vendors.interfaces.usage_interface import UsageVendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError
    from gpuhook.host.worker import NoAnswerError
    from gpuhook.request.parse import Vocabulary


class Vendor(
    InventoryVendor,
    SpecVendor,
    RequestVendor,
    UsageVendor,
    PluginVendor,
    DraVendor,
    LimitVendor,
    DoctorVendor,
    Protocol,
):
    """The name of a vendor, and its answers by feature."""

    @property
    def name(self) -> str:
        """The word of options and files: "nvidia"."""

    @property
    def title(self) -> str:
        """The name for people: "NVIDIA"."""

    @property
    def domain(self) -> str:
        """The prefix of resources, labels and CDI kinds: "nvidia.com"."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The variables, paths and kinds of the vendor's requests."""

    def no_answer(self, error: NoAnswerError, seconds: float) -> GpuhookError:
        """Return the fault for a call of the driver without an answer within `seconds`."""

    @property
    def capability_words(self) -> tuple[str, ...]:
        """The driver capabilities, () for a vendor without."""

    def parse_capabilities(self, value: str | None) -> frozenset[str]:
        """Return the capabilities that a comma-separated list names, with those they imply."""
