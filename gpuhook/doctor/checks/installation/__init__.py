# SPDX-License-Identifier: Apache-2.0
"""Doctor checks of gpuhook's own installation."""
