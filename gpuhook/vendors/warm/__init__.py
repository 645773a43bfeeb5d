# SPDX-License-Identifier: Apache-2.0
"""The vendors' answers to hooks, which run on Python 3.9."""
