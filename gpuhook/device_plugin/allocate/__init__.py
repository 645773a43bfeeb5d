# SPDX-License-Identifier: Apache-2.0
"""Answers to Allocate: the edits, variables and devices of one container."""
