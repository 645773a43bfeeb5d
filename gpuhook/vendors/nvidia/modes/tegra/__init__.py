# SPDX-License-Identifier: Apache-2.0
"""Tegra: systems on a chip with a GPU of their own, described by files of the system's maker."""
