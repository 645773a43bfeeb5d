# SPDX-License-Identifier: Apache-2.0
"""A node's AMD GPUs and their partitions as facts, from sysfs and KFD alone."""
