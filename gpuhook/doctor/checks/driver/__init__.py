# SPDX-License-Identifier: Apache-2.0
"""Doctor checks of the driver, its files and its device nodes."""
