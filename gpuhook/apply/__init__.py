# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits applied to what exists: config.json, a root file system, a running container."""
