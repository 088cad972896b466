package postgres

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// alive reports whether a process does anything any more. A zombie does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := stat[bytes.LastIndexByte(stat, ')')+2]
	return state != 'Z' && state != 'X'
}

// TestServer_EndsWithItsTestProcess has a test process die with no chance
// to stop its server.
func TestServer_EndsWithItsTestProcess(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, die := range map[string]func(*exec.Cmd, io.Closer) error{
		"SIGKILL": func(c *exec.Cmd, _ io.Closer) error { return c.Process.Kill() },
		"os.Exit": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"=1")
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
			var pid int
			var dir string
			if _, err := fmt.Sscan(line, &pid, &dir); err != nil {
				t.Fatalf("the child printed %q: %v", line, err)
			}
			pids, err := process.Descendants(pid)
			if err != nil || len(pids) < 3 {
				t.Errorf("the server has children %v, %v; want some more", pids, err)
			}
			// A server started later does not take it for a leftover.
			StartFor(t, Config{})
			if !exists(dir) || !alive(t, pid) {
				t.Errorf("the server is gone before its process is")
			}

			if err := die(cmd, stdin); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // it was to die
			awaitEnd(t, append(pids, pid))
			StartFor(t, Config{}) // removes it, if no other process was quicker
			await(t, "the removal of "+dir, func() bool { return !exists(dir) })
		})
	}
}

// watchSharedMemory looks at what a server takes from the machine that is not given
// back when it dies, and returns a function that fails if it still has it.
func watchSharedMemory(t *testing.T, pid int) (check func()) {
	t.Helper()
	files := sharedFiles(t, pid) // none where /dev/shm is of no use: then there are more segments
	if len(segments(t, pid)) == 0 {
		t.Error("the server has no shared memory, so the test looks for it in the wrong way")
	}
	return func() {
		t.Helper()
		if left := segments(t, pid); len(left) > 0 {
			t.Errorf("segments %q were left behind", left)
		}
		if left := slices.DeleteFunc(files, func(name string) bool { return !exists(name) }); len(left) > 0 {
			t.Errorf("files %q were left behind", left)
		}
	}
}

// sharedFiles returns the files that a process shares its memory by.
func sharedFiles(t *testing.T, pid int) []string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`/dev/shm/PostgreSQL\S*`).FindAllString(string(maps), -1)
}

// segments returns the shared memory segments that a process has created.
func segments(t *testing.T, pid int) (ids []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		// key shmid perms size cpid ...
		if f := strings.Fields(line); f[4] == strconv.Itoa(pid) {
			ids = append(ids, f[1])
		}
	}
	return ids
}
