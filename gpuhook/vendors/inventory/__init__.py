# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node and their documents, as every vendor gives them."""
