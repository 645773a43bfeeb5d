// SPDX-License-Identifier: Apache-2.0

// Reads CDI spec directories as engines do, with the CDI library. A document is a JSON object: the
// directories, lowest priority first, the devices to inject, and the config.json.
package main

import (
	"encoding/json"

	"github.com/container-orchestrated-devices/container-device-interface/pkg/cdi"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

type question struct {
	Dirs   []string
	Names  []string
	Config specs.Spec
}

type findings struct {
	Devices []string              // all that the specs describe
	Broken  []string              // paths of refused files
	Kinds   map[string]string     // of the readable specs, by path
	Edited  map[string]specs.Spec // by the device that was injected
	Errors  map[string]string     // of injections
}

func answered(document []byte) (interface{}, error) {
	var asked question
	if err := json.Unmarshal(document, &asked); err != nil {
		return nil, err
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, err
	}
	found := findings{cache.ListDevices(), nil, map[string]string{}, map[string]specs.Spec{}, map[string]string{}}
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
		if err := json.Unmarshal(document, &again); err != nil {
			return nil, err
		}
		if _, err := cache.InjectDevices(&again.Config, name); err != nil {
			found.Errors[name] = err.Error()
		} else {
			found.Edited[name] = again.Config
		}
	}
	return found, nil
}

func main() {
	serve(answered)
}
