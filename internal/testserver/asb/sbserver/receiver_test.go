//go:build darwin || linux

package sbserver

import (
	"slices"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

func TestReceiver_KeepsDeletedMessagesWithoutCredit(t *testing.T) {
	t.Parallel()
	r := &receiver{mode: broker.ReceiveAndDelete}
	tags := func(messages []amqp10.Outgoing) string {
		var all []byte
		for _, m := range messages {
			all = append(all, m.Tag...)
		}
		return string(all)
	}
	messages := []amqp10.Outgoing{{Tag: []byte("a")}, {Tag: []byte("b")}, {Tag: []byte("c")}}
	r.Unsent(slices.Clone(messages))
	first := r.Next(2)
	if got := tags(first); got != "ab" {
		t.Errorf("messages %q", got)
	}
	r.Unsent(first[1:])
	if got := tags(r.Next(5)); got != "bc" {
		t.Errorf("messages %q", got)
	}
}
