# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API server, by the standard library: a label, events, labels."""
