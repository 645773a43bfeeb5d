# SPDX-License-Identifier: Apache-2.0
"""A node's driver and GPUs as facts, and the file formats of these facts."""
