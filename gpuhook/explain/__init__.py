# SPDX-License-Identifier: Apache-2.0
"""What a container requests, what it would get, and why."""
