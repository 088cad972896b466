//go:build darwin || linux

package rabbitmq

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// awaiting waits until a condition holds.
func awaiting(t *testing.T, subject string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(process.Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", process.Patience, subject)
		}
	}
}

// processes returns all processes of a server, the first of them first, without
// epmd, which stays until Stop.
func processes(t *testing.T, s *Server) []int {
	t.Helper()
	pids, err := process.Descendants(s.life.Running().ID())
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) == 0 {
		t.Error("a server has one process, want some more")
	}
	return append([]int{s.life.Running().ID()}, pids...)
}

// awaitEnd waits until processes have ended.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		awaiting(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(pid) })
	}
}

// alive reports whether a process does anything any more. A zombie does not.
func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !bytes.HasPrefix(bytes.TrimSpace(state), []byte("Z"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestLeftovers_AreKilled has a program that says it is a server of a directory.
func TestLeftovers_AreKilled(t *testing.T) {
	t.Parallel()
	mine, other := t.TempDir()+"/"+prefix+"1", t.TempDir()+"/"+prefix+"12"
	var log process.Tail
	cmd := exec.Command("sh", "-c", "sleep 600; true", "sh", mark, prefix+"12")
	p, err := process.Start(cmd, &log, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}()
	var pids []int
	awaiting(t, "what the program starts", func() bool {
		if pids, err = process.Descendants(p.ID()); err != nil {
			t.Fatal(err)
		}
		return len(pids) > 0
	})
	killLeftovers(mine)
	if !alive(p.ID()) {
		t.Error("the server of another directory was killed")
	}
	killLeftovers(other)
	awaiting(t, "the end of the leftover", func() bool { return !alive(p.ID()) })
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
}

// startChild starts a test process that starts a server, and returns the server's
// processes and directory.
func startChild(t *testing.T, release Release) (cmd *exec.Cmd, stdin io.Closer, pids []int, dir string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+release.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var beam, epmd int
	if _, err := fmt.Sscan(strings.TrimSpace(line), &beam, &epmd, &dir); err != nil {
		t.Fatalf("the child printed %q: %v", line, err)
	}
	pids, err = process.Descendants(beam)
	if err != nil || len(pids) == 0 {
		t.Errorf("the server has descendants %v, %v; want some", pids, err)
	}
	return cmd, stdin, append(pids, beam, epmd), dir
}
