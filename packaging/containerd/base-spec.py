#!@PYTHON@ -IS
# SPDX-License-Identifier: Apache-2.0
"""Print the OCI spec on standard input with gpuhook's prestart hook in it.

    ctr oci spec | @SHARE@/containerd/base-spec >/etc/containerd/gpuhook-base.json

A base_runtime_spec takes the place of containerd's own default, which differs between its
versions: so it is made of the default of the containerd that is there.
"""

import json
import sys

with open("@SHARE@/hooks.d/gpuhook-prestart.json", encoding="utf-8") as file:
    hook = json.load(file)["hook"]
try:
    spec = json.load(sys.stdin)
    stage = spec.setdefault("hooks", {}).setdefault("prestart", [])
    if hook not in stage:
        stage.append(hook)
except (AttributeError, TypeError, ValueError) as error:
    sys.exit(f"base-spec: standard input is no OCI spec ({error}): `ctr oci spec` prints one")
json.dump(spec, sys.stdout, indent=4)
print()
