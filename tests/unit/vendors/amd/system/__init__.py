# SPDX-License-Identifier: Apache-2.0
"""Tests of gpuhook/vendors/amd/system."""
