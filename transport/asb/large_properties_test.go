//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// maxProperties is the service's limit of all application properties of a message.
const maxProperties = 64 << 10

// A foreign sender is held to the limits of the service alone, which are twice those of applications. The copy in the error queue, and the dead
// letter, must tell where the message failed, and why as far as there is room.
func TestFailure_OfAForeignMessageWithLargeProperties(t *testing.T) {
	t.Parallel()
	const piece = 15 << 10
	for _, c := range []struct {
		name    string
		pieces  int
		headers []string // that the failed message has, among others
	}{
		{"46 KiB", 3, []string{headers.FailedQ, headers.ExceptionMessage, headers.TimeOfFailure}},
		{"61 KiB", 4, []string{headers.FailedQ}},
	} {
		for where, letters := range map[string]bool{"error": false, "q/$deadletterqueue": true} {
			t.Run(c.name+", "+where, func(t *testing.T) {
				t.Parallel()
				s := startSite(t, sbserver.Config{})
				transport := s.provisioned(t, asb.Config{}, "q", "error")
				m := &azservicebus.Message{Body: []byte("body"), ApplicationProperties: map[string]any{headers.MessageTypes: "job"}}
				for i := range c.pieces {
					m.ApplicationProperties[fmt.Sprint("Piece", i)] = strings.Repeat("x", piece)
				}
				sendForeign(t, s, "q", m)
				ep, err := core.New("q", transport, core.Config{Recoverability: core.Recoverability{
					DeadLetter: letters, Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off},
				}})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, jobType, func(context.Context, *core.Message, []byte) error {
					return errors.New(strings.Repeat("out of stock ", 1000))
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- ep.Run(ctx) }()
				in := take(t, openReceiver(t, transport, where, 1), 1)[0].Incoming()
				if string(in.Body) != "body" {
					t.Errorf("the body is %q", in.Body)
				}
				for i := range c.pieces {
					if got := len(in.Headers.Get(fmt.Sprint("Piece", i))); got != piece {
						t.Errorf("property %d of the sender has %d bytes, want %d", i, got, piece)
					}
				}
				for _, key := range c.headers {
					if in.Headers.Get(key) == "" {
						t.Errorf("it does not have the header %s", key)
					}
				}
				if size := in.Headers.Bytes(); size > maxProperties {
					t.Errorf("its properties have %d bytes, and the service takes %d", size, maxProperties)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sendForeign sends a message with the bare SDK.
func sendForeign(t *testing.T, s *site, queue string, m *azservicebus.Message) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendMessage(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
}

// The service has accepted the largest message that it takes, and refuses each copy of it: it ends as a dead letter, and tells which queue it failed
// in, though its sender has written another one.
func TestFailure_OfTheLargestForeignMessage(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "error")
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
	sender, err := client.NewSender("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	size := 256 << 10 // without its headers
	for {
		m := &azservicebus.Message{Body: make([]byte, size), ApplicationProperties: map[string]any{headers.MessageTypes: "job", headers.FailedQ: "elsewhere"}}
		if err := sender.SendMessage(t.Context(), m, nil); err == nil {
			break
		} else if size--; size < 255<<10 {
			t.Fatal(err)
		}
	}
	ep, err := core.New("q", transport, core.Config{Recoverability: core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off},
	}})
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, jobType, func(context.Context, *core.Message, []byte) error { return errors.New("out of stock") })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	in := take(t, openReceiver(t, transport, "q/$deadletterqueue", 1), 1)[0].Incoming()
	if len(in.Body) != size || in.Headers.Get(headers.FailedQ) != "q" || in.Headers.Get("DeadLetterErrorDescription") != "out of stock" {
		t.Errorf("it came with %d bytes, want %d, and %v", len(in.Body), size, in.Headers)
	}
	if n := ep.Health().CriticalErrors; n > 0 {
		t.Errorf("%d critical errors, want none", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
