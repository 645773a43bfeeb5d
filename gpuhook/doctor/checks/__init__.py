# SPDX-License-Identifier: Apache-2.0
"""The checks themselves: one module per subject, each with its CHECKS."""
