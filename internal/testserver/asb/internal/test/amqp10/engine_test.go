package amqp10_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// patience is a deadline that means never: a test that waits for it has failed.
const patience = 2 * time.Minute

func TestConn_SASL(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	cfg := amqp10.Config{Authenticate: func(mechanism string, response []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, mechanism)
		return string(response) != "\x00u\x00wrong"
	}}
	for _, sasl := range []amqp.SASLType{amqp.SASLTypeAnonymous(), amqp.SASLTypePlain("u", "p"), amqp.SASLTypeExternal(""), nil} {
		c, _, ended := dial(t, cfg, newNode(), &amqp.ConnOptions{SASLType: sasl})
		begin(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if want := []string{"ANONYMOUS", "PLAIN", "EXTERNAL"}; !slices.Equal(seen, want) {
		t.Errorf("mechanisms %q", seen)
	}
	nc, _, ended := serve(t, cfg, newNode())
	if _, err := amqp.NewConn(deadline(t), nc, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("u", "wrong")}); err == nil {
		t.Error("a wrong password was accepted")
	}
	if err := <-ended; err == nil || bytes.Contains([]byte(err.Error()), []byte("wrong")) {
		t.Errorf("error %v", err)
	}
}

func TestMessage_InManyFramesBothWays(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint32{512, 1000, 65536} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			n := newNode()
			c, _, _ := dial(t, amqp10.Config{MaxFrameSize: int(limit), Window: 20}, n, &amqp.ConnOptions{MaxFrameSize: limit})
			s := begin(t, c)
			bodies := [][]byte{{}, bytes.Repeat([]byte("a"), 400), bytes.Repeat([]byte("b"), 300_000), []byte("c")}
			send(t, s, bodies...)
			r := newReceiver(t, s, nil)
			for i, body := range bodies {
				m := receive(t, r)
				if !bytes.Equal(m.GetData(), body) {
					t.Fatalf("body %d of %d bytes has %d", i, len(body), len(m.GetData()))
				}
				if err := r.AcceptMessage(deadline(t), m); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestSend_GoesOnAfterTheFirstCredit(t *testing.T) {
	t.Parallel()
	n := newNode()
	c, _, _ := dial(t, amqp10.Config{Window: 8}, n, nil)
	bodies := make([][]byte, 100) // credit 10
	send(t, begin(t, c), bodies...)
	if len(n.incoming) != len(bodies) {
		t.Errorf("%d messages arrived", len(n.incoming))
	}
}

func TestSend_Settled(t *testing.T) {
	t.Parallel()
	n := newNode()
	c, _, _ := dial(t, amqp10.Config{}, n, nil)
	sender, err := begin(t, c).NewSender(deadline(t), "q", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(deadline(t), amqp.NewMessage(nil), nil); err != nil {
		t.Fatal(err)
	}
	n.await(t, "the message", func() bool { return len(n.incoming) == 1 && n.incoming[0].Settled })
}

func TestReceive_CreditIsRespected(t *testing.T) {
	t.Parallel()
	n := newNode()
	c, _, _ := dial(t, amqp10.Config{}, n, nil)
	s := begin(t, c)
	send(t, s, []byte("a"), []byte("b"), []byte("c"))
	r := newReceiver(t, s, &amqp.ReceiverOptions{Credit: -1})
	if err := r.IssueCredit(2); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"a", "b"} {
		if m := receive(t, r); string(m.GetData()) != body {
			t.Errorf("body %q", m.GetData())
		}
	}
	if len(n.queue) != 1 {
		t.Errorf("%d messages are left", len(n.queue))
	}
	if err := r.IssueCredit(5); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, r); string(m.GetData()) != "c" {
		t.Errorf("body %q", m.GetData())
	}
	for range 2 { // the second time there is no credit
		if err := r.DrainCredit(deadline(t), nil); err != nil {
			t.Fatal(err)
		}
	}
	send(t, s, []byte("d"))
	if m := r.Prefetched(); m != nil || len(n.queue) != 1 {
		t.Errorf("the drained link got %v", m)
	}
}

func TestReceive_SettleModes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options amqp.ReceiverOptions
		settled []bool // as the broker sees it
	}{
		"first":   {amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()}, []bool{true}},
		"second":  {amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}, []bool{false}},
		"settled": {amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			c, _, _ := dial(t, amqp10.Config{}, n, nil)
			s := begin(t, c)
			send(t, s, []byte("a"))
			r := newReceiver(t, s, &tt.options)
			if err := r.RejectMessage(deadline(t), receive(t, r), nil); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(deadline(t)); err != nil { // the disposition came before
				t.Fatal(err)
			}
			n.await(t, "the end of both links", func() bool { return n.closed == 2 })
			var settled []bool
			for _, s := range n.settled {
				if _, ok := s.State.(amqp10.Rejected); !ok || s.Ref != uint64(1) {
					t.Errorf("settlement %#v", s)
				}
				settled = append(settled, s.Settled)
			}
			if !slices.Equal(settled, tt.settled) {
				t.Errorf("settled %v", settled)
			}
		})
	}
}

func TestLink_Refused(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.attach = func(l *amqp10.Link) bool {
		if l.Name() == "later" {
			go l.Refuse(amqp10.Errorf("a:condition", "text"))
		} else {
			l.Refuse(amqp10.Errorf("a:condition", "text"))
		}
		return true
	}
	c, _, _ := dial(t, amqp10.Config{}, n, nil)
	s := begin(t, c)
	for _, name := range []string{"now", "later"} {
		_, err := s.NewReceiver(deadline(t), "q", &amqp.ReceiverOptions{Name: name})
		var e *amqp.Error
		if !errors.As(err, &e) || e.Condition != "a:condition" || e.Description != "text" {
			t.Errorf("receiver: %v", err)
		}
		_, err = s.NewSender(deadline(t), "q", &amqp.SenderOptions{Name: name})
		if !errors.As(err, &e) || e.Condition != "a:condition" {
			t.Errorf("sender: %v", err)
		}
	}
}

func TestLink_ClientGivesUpBeforeTheBrokerDecides(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.attach = func(l *amqp10.Link) bool { return l.Name() == "slow" }
	c, _, _ := dial(t, amqp10.Config{}, n, nil)
	s := begin(t, c)
	ctx, cancel := context.WithCancel(deadline(t))
	go func() {
		n.await(t, "the attach", func() bool { return len(n.links) == 1 })
		cancel()
	}()
	if _, err := s.NewReceiver(ctx, "q", &amqp.ReceiverOptions{Name: "slow"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	newReceiver(t, s, nil) // detaches the link that was given up
	waiting := n.links[0]
	<-waiting.Done()
	if waiting.AcceptOutgoing(&outlet{node: n, link: waiting}, amqp10.Reply{}) {
		t.Error("a link was accepted that has ended")
	}
	waiting.Refuse(nil)
	waiting.Detach(nil)
	newReceiver(t, s, nil) // the session still works
}

func TestLink_DetachedByTheBroker(t *testing.T) {
	t.Parallel()
	n := newNode()
	c, _, _ := dial(t, amqp10.Config{}, n, nil)
	s := begin(t, c)
	r := newReceiver(t, s, nil)
	sender, err := s.NewSender(deadline(t), "q", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range n.links {
		l.Detach(amqp10.Errorf("a:condition", "text"))
		l.Detach(nil) // does nothing
	}
	_, err = r.Receive(deadline(t), nil)
	var e *amqp.LinkError
	if !errors.As(err, &e) || e.RemoteErr == nil || e.RemoteErr.Condition != "a:condition" {
		t.Errorf("receive: %v", err)
	}
	err = sender.Send(deadline(t), amqp.NewMessage(nil), nil)
	if !errors.As(err, &e) || e.RemoteErr == nil || e.RemoteErr.Condition != "a:condition" {
		t.Errorf("send: %v", err)
	}
	n.await(t, "the end of both links", func() bool { return n.closed == 2 })
	send(t, s, nil) // the session still works
}

func TestConn_EndsAllLinks(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(client *amqp.Conn, s *amqp.Session, c *amqp10.Conn){
		"by the client":    func(client *amqp.Conn, _ *amqp.Session, _ *amqp10.Conn) { client.Close() },
		"with the session": func(_ *amqp.Conn, s *amqp.Session, _ *amqp10.Conn) { s.Close(context.Background()) },
		"by the server": func(_ *amqp.Conn, _ *amqp.Session, c *amqp10.Conn) {
			c.Close(amqp10.Errorf(amqp10.ErrConnectionForced, "bye"))
		},
		"by a lost connection":  func(_ *amqp.Conn, _ *amqp.Session, c *amqp10.Conn) { c.Cut() },
		"by a server, silently": func(_ *amqp.Conn, _ *amqp.Session, c *amqp10.Conn) { c.Close(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			client, c, _ := dial(t, amqp10.Config{}, n, nil)
			s := begin(t, client)
			newReceiver(t, s, nil)
			r := newReceiver(t, s, nil)
			if _, err := s.NewSender(deadline(t), "q", nil); err != nil {
				t.Fatal(err)
			}
			end(client, s, c)
			if _, err := r.Receive(deadline(t), nil); err == nil {
				t.Error("a link of the lost connection received")
			}
			n.await(t, "the end of all links", func() bool { return n.closed == 3 })
		})
	}
}

func TestConn_CloseTellsTheReason(t *testing.T) {
	t.Parallel()
	client, c, ended := dial(t, amqp10.Config{}, newNode(), nil)
	s := begin(t, client)
	go c.Close(amqp10.Errorf(amqp10.ErrConnectionForced, "bye"))
	<-client.Done()
	var e *amqp.Error
	if !errors.As(client.Err(), &e) || e.Condition != amqp.ErrCondConnectionForced || e.Description != "bye" {
		t.Errorf("reason %v", client.Err())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := s.NewSender(deadline(t), "q", nil); err == nil {
		t.Error("a closed connection attached a link")
	}
}
