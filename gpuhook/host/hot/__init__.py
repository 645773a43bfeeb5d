# SPDX-License-Identifier: Apache-2.0
"""The part of host that the runtime wrapper imports."""
