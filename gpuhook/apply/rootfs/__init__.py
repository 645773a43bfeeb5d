# SPDX-License-Identifier: Apache-2.0
"""Links and the dynamic loader's files in a container's root file system."""
