package transport_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

func TestDeduplicationID(t *testing.T) {
	t.Parallel()
	message := func(reason core.SendReason, unique string) *core.Outgoing {
		out := &core.Outgoing{ID: "id", Queue: "orders", Reason: reason}
		if unique != "" {
			out.Headers.Set(headers.RetryUniqueMessageID, unique)
		}
		return out
	}
	const want = "return-2c803cc5452404b51140af8db09a3786" // other versions must make the same
	if got := transport.DeduplicationID(message(core.ReasonReturn, "campaign/1")); got != want {
		t.Errorf("the id of a return is %s, want %s", got, want)
	}
	long := strings.Repeat("ü", 1000)
	known := map[string]bool{}
	for _, unique := range []string{"campaign/1", "campaign/2", long, long + "2"} {
		id := transport.DeduplicationID(message(core.ReasonReturn, unique))
		if known[id] || len(id) > 39 || id != transport.DeduplicationID(message(core.ReasonReturn, unique)) {
			t.Errorf("the id of the return %.20s is %s", unique, id)
		}
		known[id] = true
	}
	for _, out := range []*core.Outgoing{
		message(core.ReasonReturn, ""), message(core.ReasonApplication, "campaign/1"), message(core.ReasonMoveToError, "campaign/1"), message(core.ReasonForward, "campaign/1"),
	} {
		for range 2 {
			id := transport.DeduplicationID(out)
			if known[id] || len(id) > 39 {
				t.Errorf("the id of a %v is %s, which is not new", out.Reason, id)
			}
			known[id] = true
		}
	}
}
