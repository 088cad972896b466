package core_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails when tests left goroutines of this module behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leakedGoroutines(); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), bytes.Join(left, []byte("\n\n")))
		code = 1
	}
	os.Exit(code)
}

// leakedGoroutines returns the stacks of goroutines that run our code or were started
// by it. Those on their way out get time to go.
func leakedGoroutines() (left [][]byte) {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left = nil
		all := make([]byte, 16<<20)
		all = all[:runtime.Stack(all, true)]
		for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
			if bytes.Contains(stack, []byte("reprise/")) && !bytes.Contains(stack, []byte(".TestMain(")) {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}
