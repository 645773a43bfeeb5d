# SPDX-License-Identifier: Apache-2.0
"""A node's GPUs as a picture: each GPU is a bar of its memory, divided among its users."""
