# SPDX-License-Identifier: Apache-2.0
"""Support bundles: a node in one file, without its secrets, to be sent and looked at again."""

from gpuhook.support_bundle.bundle_reader import examined, opened

__all__ = ["examined", "opened"]
