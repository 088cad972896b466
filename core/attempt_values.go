package core

import "sync"

// values are the values that were set in one attempt (Message.SetValue).
type values struct {
	mu    sync.Mutex
	byKey map[any]any
}

// get works on nil values too.
func (v *values) get(key any) any {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byKey[key]
}

func (v *values) set(key, value any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byKey == nil {
		v.byKey = map[any]any{}
	}
	v.byKey[key] = value
}

// SetValue stores a value for the rest of this attempt: for middleware around the
// handler, for the policy, [HandleFailed] and the observers. Each attempt begins without
// values. All runs of an attempt (see [Middleware]) share them. The key must be
// comparable; to avoid collisions its type is one of the package that sets it, as with
// context.WithValue. SetValue and [Message.Value] are safe for concurrent use, also after
// the handler has returned.
func (m *Message) SetValue(key, value any) { m.values(true).set(key, value) }

// Value returns the value that [Message.SetValue] stored in this attempt, or nil. In
// [HandleFailed] it is the value of the attempt that failed.
func (m *Message) Value(key any) any { return m.values(false).get(key) }

// values returns the values of the attempt, or nil if there are none and none are wanted.
func (m *Message) values(wanted bool) *values {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	if outermost.attemptValues == nil && wanted {
		outermost.attemptValues = &values{}
	}
	return outermost.attemptValues
}

// outermost returns the message of the attempt; m may be that of one run.
func (m *Message) outermost() *Message {
	for m.parent != nil {
		m = m.parent
	}
	return m
}

// Value returns the value that the attempt set with [Message.SetValue], or nil.
func (c ErrorContext) Value(key any) any { return c.attemptValues.get(key) }

// WithValue returns a copy with one more value, for the test of a policy that calls
// [ErrorContext.Value].
func (c ErrorContext) WithValue(key, value any) ErrorContext {
	values := &values{}
	if c.attemptValues != nil {
		c.attemptValues.mu.Lock()
		for k, v := range c.attemptValues.byKey {
			values.set(k, v)
		}
		c.attemptValues.mu.Unlock()
	}
	values.set(key, value)
	c.attemptValues = values
	return c
}

// Value returns the value that the attempt set with [Message.SetValue], or nil. A
// decision that was carried out in a later delivery of the message (R25) has none.
func (r Recovery) Value(key any) any { return r.attemptValues.get(key) }
