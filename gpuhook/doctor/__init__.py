# SPDX-License-Identifier: Apache-2.0
"""The checks of `gpuhook doctor`: what may be wrong with a node, and what mends it."""
