# SPDX-License-Identifier: Apache-2.0
"""A node's GPUs as a CDI spec, and the records of generated specs."""
