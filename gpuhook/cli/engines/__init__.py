# SPDX-License-Identifier: Apache-2.0
"""Commands that configure container engines and install gpuhook on a host."""
