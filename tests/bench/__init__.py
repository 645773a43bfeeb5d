# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ratios measured in one run, printed; nothing here is a test."""
