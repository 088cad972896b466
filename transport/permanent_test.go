package transport_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/reprise-go/reprise/transport"
)

func TestPermanent(t *testing.T) {
	if err := transport.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) = %v", err)
	}
	marked := transport.Permanent(io.EOF)
	if marked.Error() != io.EOF.Error() || !errors.Is(marked, io.EOF) {
		t.Errorf("the marked error is %v", marked)
	}
	for err, want := range map[error]bool{
		nil:                            false,
		io.EOF:                         false,
		marked:                         true,
		fmt.Errorf("open: %w", marked): true,
		errors.Join(io.EOF, marked):    true,
	} {
		if got := transport.IsPermanent(err); got != want {
			t.Errorf("IsPermanent(%v) = %t", err, got)
		}
	}
}
