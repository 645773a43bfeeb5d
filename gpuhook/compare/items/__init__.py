# SPDX-License-Identifier: Apache-2.0
"""What is compared: device nodes, mounts, variables, libraries, and what explains a difference."""
