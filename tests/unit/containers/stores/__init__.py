# SPDX-License-Identifier: Apache-2.0
"""Stores of engines. The files are as Docker 26.1, podman 5.4 and containerd 1.7 write them."""
