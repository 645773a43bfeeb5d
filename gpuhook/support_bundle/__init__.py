# SPDX-License-Identifier: Apache-2.0
"""Support bundles: a node in one file, as far as an allow-list goes, to be sent and looked at."""

from gpuhook.support_bundle.bundle_reader import examined, opened

__all__ = ["examined", "opened"]
