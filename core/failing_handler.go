package core

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
)

// failingHandler is the handler that failed in an attempt.
type failingHandler struct {
	name          string
	began, failed time.Time

	handledByFallback error // the failure that a Fallback handled instead, or nil
}

// functionName returns the name of a function with its package, "shop/billing.charge" or
// "shop/billing.(*Service).Charge".
func functionName(f any) string {
	if function := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); function != nil {
		return boundedText(strings.TrimSuffix(function.Name(), "-fm"), maxTypeName)
	}
	return "unknown function"
}

// distinctName adds a number to the name of a handler if the same type already has a
// handler with this name, such as a function that another function returned.
func distinctName(names []string, name string) string {
	distinct := name
	for n := 2; slices.Contains(names, distinct); n++ {
		distinct = fmt.Sprintf("%s #%d", name, n)
	}
	return distinct
}

// recordFailingHandler records the handler of m that failed.
func (m *Message) recordFailingHandler(h *failingHandler) {
	m = m.outermost()
	m.mu.Lock()
	m.failing = h
	m.mu.Unlock()
}

// failingHandler returns the handler that failed in the last run, or the zero value: then
// no handler ran, or the attempt failed outside of them.
func (m *Message) failingHandler() failingHandler {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing == nil {
		return failingHandler{}
	}
	return *m.failing
}
