# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits applied to an OCI runtime spec, and the record that undoes it."""
