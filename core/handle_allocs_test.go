//go:build !race

package core_test

import (
	"runtime"
	"testing"
)

// A handler without middleware and options costs seven allocations, two of them of a few bytes,
// and about 1,120 bytes a message, the transport's included. The race detector adds to both.
func TestHandle_AllocationsPerMessage(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			send := runHandler(t, mode)
			for range 100 { // memory that is kept for the next message
				send()
			}
			const runs = 2000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range runs {
				send()
			}
			runtime.ReadMemStats(&after)
			if n := (after.Mallocs - before.Mallocs) / runs; n > 7 {
				t.Errorf("%d allocations a message, want 7", n)
			}
			// Less than one step between two sizes of allocations above 1,120.
			if n := (after.TotalAlloc - before.TotalAlloc) / runs; n >= 1120+32 {
				t.Errorf("%d bytes a message, want about 1,120", n)
			}
		})
	}
}
