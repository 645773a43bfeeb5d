// SPDX-License-Identifier: Apache-2.0

// Decodes each document as runc decodes config.json. The first answer is the runtime spec, the
// second the whole value.
package main

import (
	"bytes"
	"encoding/json"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func spec(document []byte) (interface{}, error) {
	var found specs.Spec
	err := json.NewDecoder(bytes.NewReader(document)).Decode(&found)
	return found, err
}

func whole(document []byte) (interface{}, error) {
	var found interface{}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	err := decoder.Decode(&found)
	return found, err
}

func main() {
	serve(spec, whole)
}
