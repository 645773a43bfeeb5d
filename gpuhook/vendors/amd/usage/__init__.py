# SPDX-License-Identifier: Apache-2.0
"""The usage of AMD GPUs: memory, utilization and processes, from sysfs, KFD and procfs alone."""
