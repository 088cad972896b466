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
