# SPDX-License-Identifier: Apache-2.0
"""Tests on a real NVIDIA GPU; without one they are skipped."""
