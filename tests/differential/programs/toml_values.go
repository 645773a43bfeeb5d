// SPDX-License-Identifier: Apache-2.0

// Decodes each document with the TOML parsers of engines: go-toml (containerd 1.x), its version 2
// (containerd 2.x) and BurntSushi's (podman, CRI-O).
package main

import (
	burnt "github.com/BurntSushi/toml"
	first "github.com/pelletier/go-toml"
	second "github.com/pelletier/go-toml/v2"
)

func byFirst(document []byte) (interface{}, error) {
	tree, err := first.LoadBytes(document)
	if err != nil {
		return nil, err
	}
	return tree.ToMap(), nil
}

func by(unmarshal func([]byte, interface{}) error) reader {
	return func(document []byte) (interface{}, error) {
		values := map[string]interface{}{}
		err := unmarshal(document, &values)
		return values, err
	}
}

func main() {
	serve(byFirst, by(second.Unmarshal), by(burnt.Unmarshal))
}
