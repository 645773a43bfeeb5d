// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

type reader func(document []byte) (interface{}, error)

// serve answers each document on standard input with what each reader makes of it, as JSON. A
// document, and each answer, is a frame: its length in 4 bytes, then its bytes. "!" precedes an
// error.
func serve(readers ...reader) {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	var size uint32
	for binary.Read(in, binary.BigEndian, &size) == nil {
		document := make([]byte, size)
		if _, err := io.ReadFull(in, document); err != nil {
			panic(err)
		}
		for _, read := range readers {
			text, err := answer(read, document)
			if err != nil {
				text = []byte("!" + err.Error())
			}
			binary.Write(out, binary.BigEndian, uint32(len(text)))
			out.Write(text)
		}
		out.Flush()
	}
}

func answer(read reader, document []byte) (text []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	value, err := read(document)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
