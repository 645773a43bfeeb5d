# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of a vendor's GPUs, for generate-cdi and refresh."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.spec_call import SpecCall, SpecOptions
    from gpuhook.vendors.spec_case import SpecCase, SpecLook


class SpecVendor(Protocol):
    """A vendor whose GPUs generate-cdi describes."""

    @property
    def own_options(self) -> frozenset[str]:
        """The options of generate-cdi, by parameter, that only this vendor's specs have."""

    def spec_call(self, options: SpecOptions) -> SpecCall:
        """Return the call of generate-cdi with these options.

        Raises the vendor's faults, and WrongOptionsError for options that exclude each other.
        """

    def spec_cases(self, look: SpecLook) -> list[SpecCase]:
        """Return a case for each spec of this node, and for the first spec of GPUs without one."""

    def forget_spec(self, path: str) -> None:
        """Remove the record of a spec that is no longer generate-cdi's; raises OSError."""
