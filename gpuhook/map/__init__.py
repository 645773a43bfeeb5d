# SPDX-License-Identifier: Apache-2.0
"""A node's GPUs as a picture: each a bar of its memory, cut into those who have a part of it."""
