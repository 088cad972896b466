// Package values has the values that one attempt at a message carries.
package values

import (
	"maps"
	"sync"
)

// Values has values by their keys. It is safe for concurrent use.
type Values struct {
	mu    sync.Mutex
	byKey map[any]any
}

// Get returns the value of a key, or nil. v may be nil.
func (v *Values) Get(key any) any {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byKey[key]
}

// Set sets the value of a key.
func (v *Values) Set(key, value any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byKey == nil {
		v.byKey = map[any]any{}
	}
	v.byKey[key] = value
}

// With returns a copy with one more value. v may be nil.
func (v *Values) With(key, value any) *Values {
	all := &Values{}
	if v != nil {
		v.mu.Lock()
		all.byKey = maps.Clone(v.byKey)
		v.mu.Unlock()
	}
	all.Set(key, value)
	return all
}
