# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's driver needs in a container's root file system, as jobs of the hook."""
