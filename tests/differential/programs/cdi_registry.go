// SPDX-License-Identifier: Apache-2.0

// Reads CDI spec directories as engines do, with the CDI library. Each frame on standard input (its
// length in 4 bytes, then its bytes) is a JSON object: the directories, lowest priority first, the
// devices to inject, and the config.json. The answer is a frame too.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/container-orchestrated-devices/container-device-interface/pkg/cdi"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

type question struct {
	Dirs   []string
	Names  []string
	Config specs.Spec
}

type answer struct {
	Devices []string              // all that the specs describe
	Broken  []string              // paths of refused files
	Kinds   map[string]string     // of the readable specs, by path
	Edited  map[string]specs.Spec // by the device that was injected
	Errors  map[string]string     // of injections
}

func answered(asked question, document []byte) (found answer, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return
	}
	found = answer{cache.ListDevices(), nil, map[string]string{}, map[string]specs.Spec{}, map[string]string{}}
	for _, vendor := range cache.ListVendors() {
		for _, spec := range cache.GetVendorSpecs(vendor) {
			found.Kinds[spec.GetPath()] = spec.Kind
		}
	}
	for path := range cache.GetErrors() {
		if _, readable := found.Kinds[path]; !readable {
			found.Broken = append(found.Broken, path)
		}
	}
	for _, name := range asked.Names {
		var again question
		if err = json.Unmarshal(document, &again); err != nil {
			return
		}
		if _, err := cache.InjectDevices(&again.Config, name); err != nil {
			found.Errors[name] = err.Error()
		} else {
			found.Edited[name] = again.Config
		}
	}
	return
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	var size uint32
	for binary.Read(in, binary.BigEndian, &size) == nil {
		document := make([]byte, size)
		if _, err := io.ReadFull(in, document); err != nil {
			panic(err)
		}
		var asked question
		err := json.Unmarshal(document, &asked)
		var text []byte
		if err == nil {
			var found answer
			if found, err = answered(asked, document); err == nil {
				text, err = json.Marshal(found)
			}
		}
		if err != nil {
			text = []byte("!" + err.Error())
		}
		binary.Write(out, binary.BigEndian, uint32(len(text)))
		out.Write(text)
		out.Flush()
	}
}
