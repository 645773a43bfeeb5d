# SPDX-License-Identifier: Apache-2.0
"""Pods: what manifests ask for, what Kubernetes objects to, and what the plugin would answer."""
