# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits applied to a running container, and taken away from it."""
