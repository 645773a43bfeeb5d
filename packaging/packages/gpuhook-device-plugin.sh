#!/bin/sh
# gpuhook-device-plugin: `gpuhook device-plugin` by a name of its own, for units and process lists.
exec "@BIN@/gpuhook" device-plugin "$@"
