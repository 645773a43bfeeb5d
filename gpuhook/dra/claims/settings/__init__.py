# SPDX-License-Identifier: Apache-2.0
"""The parameters of device classes and claims, and the settings of devices that they make."""
