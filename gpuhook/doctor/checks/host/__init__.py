# SPDX-License-Identifier: Apache-2.0
"""Doctor checks of cgroups, security modules and running containers."""
