package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
)

func TestHistory_ForgetsAfterTheWindow(t *testing.T) {
	t.Parallel()
	const begin, window = clock.Instant(1000), time.Minute
	var h History
	if h.Has("a") {
		t.Error("an empty history has an id")
	}
	h.Add("a", begin)
	h.Add("b", begin.Add(time.Second))
	h.Forget(begin.Add(window-time.Millisecond), window)
	if !h.Has("a") || !h.Has("b") {
		t.Error("an id is forgotten within the window")
	}
	h.Forget(begin.Add(window), window)
	if h.Has("a") || !h.Has("b") {
		t.Errorf("after the window of a: a %t, b %t", h.Has("a"), h.Has("b"))
	}
	h.Add("c", begin.Add(window))
	var all []string
	h.Each(func(key string, at clock.Instant) { all = append(all, fmt.Sprint(key, begin.Until(at))) })
	if got := fmt.Sprint(all); got != "[b1s c1m0s]" {
		t.Errorf("it has %s", got)
	}
}
