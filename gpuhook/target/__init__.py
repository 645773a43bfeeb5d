# SPDX-License-Identifier: Apache-2.0
"""A running container, open while a command changes it, and the report of the change."""
