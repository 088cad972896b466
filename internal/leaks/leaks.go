// Package leaks finds goroutines that the tests of a package left behind.
package leaks

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// timeout is how long goroutines that are about to end may take.
const timeout = 2 * time.Minute

// Main runs the tests of a package and ends the process. It fails if the tests passed and left
// goroutines behind that run code of this project, or were started by it. It is called by
// TestMain.
func Main(m *testing.M) {
	status := m.Run()
	if status == 0 {
		if left := goroutines(timeout); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), bytes.Join(left, []byte("\n\n")))
			status = 1
		}
	}
	os.Exit(status)
}

// goroutines returns the stacks of the goroutines that are left when none is, or after a
// time.
func goroutines(timeout time.Duration) (left [][]byte) {
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		left = nil
		for stack := range bytes.SplitSeq(stacks(), []byte("\n\n")) {
			if bytes.Contains(stack, []byte("reprise/")) && !bytes.Contains(stack, []byte(".TestMain(")) {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buffer := make([]byte, size)
		if n := runtime.Stack(buffer, true); n < size {
			return buffer[:n]
		}
	}
}
