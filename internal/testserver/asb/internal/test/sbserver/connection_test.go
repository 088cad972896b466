//go:build darwin || linux

package sbserver_test

import (
	"context"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
)

// go-amqp ends a session whose begin was cancelled before it was sent.
func TestSession_EndWithoutBeginIsIgnored(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancelled, cancel := context.WithCancel(n.ctx)
	cancel()
	for range 100 {
		if _, err := conn.NewSession(cancelled, nil); err == nil {
			t.Fatal("a session was opened although the context has ended")
		}
		if _, err := conn.NewSession(n.ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
}
