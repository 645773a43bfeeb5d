// SPDX-License-Identifier: Apache-2.0

// Decodes each document on standard input as runc decodes config.json, and prints what it has read.
// A document, and each of the two answers to it, is a frame: its length in 4 bytes, then its bytes.
// The first answer is the runtime spec, the second the whole value; "!" precedes an error.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func answer(out io.Writer, value interface{}, err error) {
	text := []byte("")
	if err == nil {
		text, err = json.Marshal(value)
	}
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
		var spec specs.Spec
		err := json.NewDecoder(bytes.NewReader(document)).Decode(&spec)
		answer(out, spec, err)
		var whole interface{}
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.UseNumber()
		err = decoder.Decode(&whole)
		answer(out, whole, err)
		out.Flush()
	}
}
