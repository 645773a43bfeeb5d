# SPDX-License-Identifier: Apache-2.0
"""containerd's configuration edited, and checked as containerd reads it."""
