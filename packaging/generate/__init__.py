# SPDX-License-Identifier: Apache-2.0
"""Generated files of this checkout."""
