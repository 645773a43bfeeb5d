# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes and the drivers refuse in claims, templates, device classes and pods."""
