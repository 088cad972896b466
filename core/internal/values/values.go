// Package values has the values that one attempt at a message carries.
package values

import "sync"

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
