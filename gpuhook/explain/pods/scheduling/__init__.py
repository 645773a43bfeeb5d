# SPDX-License-Identifier: Apache-2.0
"""Scheduling: what is known of the node, compared with the constraints of a pod."""
