# SPDX-License-Identifier: Apache-2.0
"""Tegra: systems on a chip with their own GPU, described by CSV files of the vendor."""
