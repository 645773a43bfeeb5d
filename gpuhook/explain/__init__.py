# SPDX-License-Identifier: Apache-2.0
"""What a container asks for, what it would get, and why."""
