// SPDX-License-Identifier: Apache-2.0

// Decodes each document on standard input with the TOML parsers of engines, and prints the values
// as JSON: go-toml (containerd 1.x), its version 2 (containerd 2.x) and BurntSushi's (podman,
// CRI-O). A document, and each of the three answers, is a frame: its length in 4 bytes, then its
// bytes. "!" precedes an error.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	burnt "github.com/BurntSushi/toml"
	first "github.com/pelletier/go-toml"
	second "github.com/pelletier/go-toml/v2"
)

func answer(out io.Writer, decode func(*map[string]interface{}) error) {
	values := map[string]interface{}{}
	text, err := func() (text []byte, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("panic: %v", reason)
			}
		}()
		if err = decode(&values); err != nil {
			return nil, err
		}
		return json.Marshal(values)
	}()
	if err != nil {
		text = []byte("!" + err.Error())
	}
	binary.Write(out, binary.BigEndian, uint32(len(text)))
	out.Write(text)
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	var size uint32
	for binary.Read(in, binary.BigEndian, &size) == nil {
		document := make([]byte, size)
		if _, err := io.ReadFull(in, document); err != nil {
			panic(err)
		}
		answer(out, func(values *map[string]interface{}) error {
			tree, err := first.LoadBytes(document)
			if err == nil {
				*values = tree.ToMap()
			}
			return err
		})
		answer(out, func(values *map[string]interface{}) error { return second.Unmarshal(document, values) })
		answer(out, func(values *map[string]interface{}) error { return burnt.Unmarshal(document, values) })
		out.Flush()
	}
}
