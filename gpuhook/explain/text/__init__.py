# SPDX-License-Identifier: Apache-2.0
"""An explanation as text."""
