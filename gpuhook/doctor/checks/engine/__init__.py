# SPDX-License-Identifier: Apache-2.0
"""Doctor checks of container engines and of NVIDIA's toolkit."""
