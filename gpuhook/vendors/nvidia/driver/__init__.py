# SPDX-License-Identifier: Apache-2.0
"""The driver's files below a root: libraries, programs, firmware, site rules."""
