# SPDX-License-Identifier: Apache-2.0
"""The sources of facts about a node: its files, and the answers of a running one."""
