//go:build unix

package filetransport_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

// fullVariable tells a process in which directory its disk is full.
const fullVariable = "FILETRANSPORT_TEST_FULL"

// TestSend_FullDisk sends more than can be written: what was written of it is no
// message and does not stay. The limit of a process stands for the disk.
func TestSend_FullDisk(t *testing.T) {
	if dir := os.Getenv(fullVariable); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		settled(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 8 << 10, Max: 8 << 10}))
		transport := open(t, filetransport.Config{Dir: dir})
		err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders", Body: make([]byte, 64<<10)})
		matches(t, "Send", err, syscall.EFBIG)
		var failed *core.SendError
		if !errors.As(err, &failed) || failed.Results[0].State != core.SendRefused {
			t.Errorf("Send: %v", err)
		}
		send(t, transport, "small")
		return
	}
	transport, dir := opened(t, filetransport.Config{})
	self, err := os.Executable()
	settled(t, err)
	cmd := exec.Command(self, "-test.run=^TestSend_FullDisk$")
	cmd.Env = append(os.Environ(), fullVariable+"="+filepath.Dir(dir))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	equal(t, "body", string(receive(t, receiver(t, transport, 1)).Incoming().Body), "small")
	if all := names(t, dir); len(all) != 1 {
		t.Errorf("files: %q", all)
	}
}
