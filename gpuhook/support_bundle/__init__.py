# SPDX-License-Identifier: Apache-2.0
"""Support bundles: the listed files and readings of a node in one file."""

from gpuhook.support_bundle.bundle_reader import bundle_node

__all__ = ["bundle_node"]
