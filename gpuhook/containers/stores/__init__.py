# SPDX-License-Identifier: Apache-2.0
"""What engines store of their containers: names, images, labels."""
