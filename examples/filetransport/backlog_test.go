package filetransport_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

// A backlog is listed once, however many Receives it takes to work it off. That
// is told by messages that are put before all others while it is being done: a
// new list begins with them.
func TestBacklog_IsListedOnce(t *testing.T) {
	t.Parallel()
	const backlog, batch = 5_000, 50
	transport, dir := opened(t, filetransport.Config{})
	content := filepath.Join(t.TempDir(), "content")
	settled(t, os.WriteFile(content, []byte("{}\nbacklog"), 0o600))
	for i := range backlog {
		settled(t, os.Link(content, filepath.Join(dir, fmt.Sprintf("20200101T000000.%09dZ_1_%d_new", i, i))))
	}
	r := receiver(t, transport, 2*backlog)
	dst := make([]core.Delivery, batch)
	for received := 0; received < backlog; {
		n, err := r.Receive(t.Context(), dst)
		settled(t, err)
		for _, d := range dst[:n] {
			if got := string(d.Incoming().Body); got != "backlog" {
				t.Fatalf("after %d messages there was a new list: received %q", received, got)
			}
			received++
		}
		put(t, dir, fmt.Sprintf("20000101T000000.%09dZ_1_first_new", received), "{}\nfirst")
	}
	equal(t, "with the next list", string(receive(t, r).Incoming().Body), "first")
}
