# SPDX-License-Identifier: Apache-2.0
"""Pods: the requests of manifests, the objections of Kubernetes, the plugin's allocation."""
