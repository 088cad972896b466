package leaks

import (
	"bytes"
	"runtime"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestGoroutines_ReportsOneUntilItEnds(t *testing.T) {
	end := make(chan struct{})
	go waitForEnd(end)
	end <- struct{}{} // it runs
	found := func() (n int) {
		for _, stack := range goroutines(0) {
			if bytes.Contains(stack, []byte("leaks.waitForEnd")) {
				n++
			}
		}
		return n
	}
	if n := found(); n != 1 {
		t.Errorf("the running goroutine was reported %d times", n)
	}
	close(end)
	for found() > 0 { // not until the end of the package, since the test may run again
		runtime.Gosched()
	}
}

func waitForEnd(end chan struct{}) {
	<-end
	<-end
}

var kept []byte

func TestHeapGrowth(t *testing.T) {
	const size = 8 << 20
	if n := HeapGrowth(func() { kept = make([]byte, size) }); n < size/2 || n > 2*size {
		t.Errorf("%d bytes, want about %d", n, size)
	}
	if n := HeapGrowth(func() { kept = nil }); n > -size/2 {
		t.Errorf("%d bytes after the end of %d", n, size)
	}
}
