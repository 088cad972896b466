//go:build darwin || linux

package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// await waits until a condition holds.
func await(t *testing.T, subject string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(process.Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", process.Patience, subject)
		}
	}
}

// processes returns all processes of a server, the first of them first.
func processes(t *testing.T, s *Server) []int {
	t.Helper()
	pid := s.life.Running().ID()
	pids, err := process.Descendants(pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) < 3 {
		t.Errorf("a server has processes %v, want some more", pids)
	}
	return append([]int{pid}, pids...)
}

// awaitEnd waits until processes have ended. The system may not have finished with
// those that hold nothing any more.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(t, pid) })
	}
}
