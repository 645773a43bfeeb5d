# SPDX-License-Identifier: Apache-2.0
"""The driver for Dynamic Resource Allocation: publishes devices, and prepares claims for pods."""
