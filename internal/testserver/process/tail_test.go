//go:build darwin || linux

package process

import (
	"fmt"
	"strings"
	"testing"
)

func TestTail_KeepsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	var l Tail
	line := strings.Repeat("x", 999) + "\n"
	for n := range 200 {
		fmt.Fprintf(&l, "%d%s", n, line)
	}
	if got := l.String(); len(got) != kept || !strings.HasSuffix(got, "199"+line) {
		t.Errorf("%d bytes are kept, ending with %.10q; want %d, ending with the last line", len(got), got[len(got)-1003:], kept)
	}
}
