# SPDX-License-Identifier: Apache-2.0
"""The labels of NVIDIA's GPU feature discovery."""
