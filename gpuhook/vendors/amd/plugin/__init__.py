# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs for the device plugin: names of resources, links, health."""
