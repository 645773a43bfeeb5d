# SPDX-License-Identifier: Apache-2.0
"""What a running container got from whoever gave it GPUs, beside what gpuhook would have given."""
