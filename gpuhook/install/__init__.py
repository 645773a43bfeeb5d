# SPDX-License-Identifier: Apache-2.0
"""Install gpuhook on a host from a container, and uninstall it."""
