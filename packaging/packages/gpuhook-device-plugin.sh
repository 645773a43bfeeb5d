#!/bin/sh
# gpuhook-device-plugin: `gpuhook device-plugin` under a separate name, for units and process lists.
exec "@BIN@/gpuhook" device-plugin "$@"
