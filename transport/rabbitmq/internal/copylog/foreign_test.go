package copylog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
)

func TestForeign(t *testing.T) {
	t.Parallel()
	f := newForeign()
	channel, next := make(chan struct{}), make(chan struct{})
	message := func(body string) *core.Incoming { return &core.Incoming{Body: []byte(body)} }
	first := func(body string) *Copy { return f.Delivered(message(body), false, channel) }
	redelivered := func(body string) *Copy { return f.Delivered(message(body), true, next) }

	a, b, other := first("x"), first("x"), first("y")
	if a.Name == b.Name || a.Name == other.Name {
		t.Errorf("two copies are named %q, %q, %q", a.Name, b.Name, other.Name)
	}
	if c := redelivered("x"); c == a || c == b {
		t.Error("a copy that was not given back is recognised")
	}
	f.Returned(b)
	if c := redelivered("x"); c != b {
		t.Error("a copy that was given back is not recognised")
	}
	if c := redelivered("x"); c == b {
		t.Error("a copy is recognised twice")
	}
	if c := first("x"); c == a || c == b {
		t.Error("a new copy has the name of an older one")
	}
	f.Acknowledged(a)
	close(channel)
	if c := redelivered("y"); c != other {
		t.Error("a copy whose channel was lost is not recognised")
	}
	for range 3 {
		if c := redelivered("x"); c == a {
			t.Error("a copy that was acknowledged is recognised: another message of its content would be lost")
		}
	}
}

// Given-back copies that other processes receive are forgotten, the oldest first.
func TestForeign_IsBounded(t *testing.T) {
	t.Parallel()
	f, channel := newForeign(), make(chan struct{})
	var copies []*Copy
	for range 2 * limit {
		c := f.Delivered(&core.Incoming{Body: []byte("the same")}, false, channel)
		f.Returned(c)
		copies = append(copies, c)
	}
	for i := range 2 * limit {
		f.Returned(f.Delivered(&core.Incoming{Body: fmt.Append(nil, i)}, false, channel))
	}
	if n := f.copies.Len(); n > limit {
		t.Errorf("%d contents are kept, want at most %d", n, limit)
	}
	alike := f.Delivered(&core.Incoming{Body: []byte("the same")}, true, channel)
	if slices.Contains(copies[:limit], alike) {
		t.Error("more copies of one content are kept than allowed")
	}
}
