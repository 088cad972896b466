package postgres

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// alive reports whether a process does anything any more. A zombie does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// watchSharedMemory does nothing: there is no way to look at it.
func watchSharedMemory(*testing.T, int) (check func()) { return func() {} }
