# SPDX-License-Identifier: Apache-2.0
"""Claims of Dynamic Resource Allocation: which device of a node matches which request, and why."""
