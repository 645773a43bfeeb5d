# SPDX-License-Identifier: Apache-2.0
"""gpuhook and independent implementations read the same inputs."""
