package sqlserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Connections that break at one statement, just before it, in it or after it.

// carriedOut is what a client sends when it has a statement carried out that is
// prepared on its connection, as pgx does with all.
func carriedOut(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return []byte("\x00stmtcache_" + hex.EncodeToString(sum[:24]) + "\x00")
}

// ready is the end of the server's answer outside a transaction: what was to be
// committed is.
var ready = []byte("Z\x00\x00\x00\x05I")

// answered is the end of the server's answer wherever that is.
var answered = []byte("Z\x00\x00\x00\x05")

// breaks are the ways in which a connection breaks at a request.
var breaks = []struct {
	name string
	at   func(p *proxy.Proxy, request []byte) (struck <-chan struct{})
}{
	{"the request is lost", (*proxy.Proxy).LoseRequest},
	{"nobody knows", (*proxy.Proxy).CutAfter},
	{"the reply is lost", func(p *proxy.Proxy, request []byte) <-chan struct{} { return p.LoseReply(request, answered) }},
}

// statements are those on a queue.
func statements(t *testing.T, transport *sqlserver.Transport, queue string) map[string]string {
	t.Helper()
	texts, err := transport.Statements(queue)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// Each message fails once, so that all statements are needed. At one of them the
// connection breaks in each way.
func TestOutage_ConnectionBreaksAtAStatement(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	texts := statements(t, open(t, sqlserver.Config{URL: server.PasswordURL("postgres")}), inputQueue)
	sends := statements(t, open(t, sqlserver.Config{URL: server.PasswordURL("postgres")}), outputQueue)
	const write = `insert into written values ($1, $2)`
	claims, _, _ := strings.Cut(texts["claim"], "limit") // any number
	atomic, receiveOnly := core.TransactionSendsAtomicWithReceive, core.TransactionReceiveOnly
	for _, c := range []struct {
		name    string
		mode    core.TransactionMode
		request []byte
		before  []byte // a request that is lost before, to make the other one necessary
	}{
		{"prepare to claim", atomic, []byte(claims), nil},
		{"begin", atomic, carriedOut(texts["leased"]), nil},
		{"the handler's work", atomic, carriedOut(write), nil},
		{"remove", atomic, carriedOut(texts["fence"]), nil},
		{"send", atomic, carriedOut(sends["send"]), nil},
		{"commit", atomic, carriedOut("commit"), nil},
		{"look for the outcome", atomic, carriedOut(texts["begin"]), carriedOut("commit")},
		{"abandon", atomic, carriedOut(texts["abandon"]), nil},
		{"prepare to claim", receiveOnly, []byte(claims), nil},
		{"send", receiveOnly, carriedOut(sends["send"]), nil},
		{"complete", receiveOnly, carriedOut(texts["complete"]), nil},
		{"abandon", receiveOnly, carriedOut(texts["abandon"]), nil},
	} {
		t.Run(c.mode.String()+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), c.mode)
			e.transport.Lease = outageLease
			e.config.Concurrency = 1
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				if err := e.work(ctx, m, body); err != nil || m.Attempt > 1 {
					return err
				}
				if e.mode != atomic { // the handler's work elsewhere is not undone
					e.exec(`delete from written where key = $1`, string(body))
				}
				return errors.New("as ordered")
			}
			var struck []<-chan struct{}
			for _, how := range breaks {
				if c.before != nil {
					struck = append(struck, e.broker.proxy.LoseRequest(c.before))
				}
				struck = append(struck, how.at(e.broker.proxy, c.request))
			}
			const messages = 6
			e.order(messages)
			e.run()
			for _, s := range struck {
				next(t, "the connection breaks", s)
			}
			e.awaitDone()
			e.checkDone(messages)
			if n := e.number(`select count(*) from written where delivery < 2`); n > 0 {
				t.Errorf("%d messages were handled successfully at the first attempt, which the handler fails", n)
			}
		})
	}
}

// A handler whose work is not committed has failed, and the message is held on. One
// whose work is committed, though the answer is lost, is not repeated.
func TestOutage_ConnectionBreaksAtTheCommit(t *testing.T) {
	t.Parallel()
	const write = `insert into written values ($1, 1)`
	for _, c := range []struct {
		name      string
		works     bool // the handler uses the transaction
		committed bool
	}{
		{"with the handler's work, before it", true, false},
		{"with the handler's work, after it", true, true},
		{"without work, before it", false, false},
		{"without work, after it", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
			transport := open(t, e.transport)
			r := openReceiver(t, transport, inputQueue, e.mode)
			e.order(1)
			d := receive(t, r)
			if c.works {
				if err := work(d.BindContext(t.Context()), write, "1"); err != nil {
					t.Fatal(err)
				}
			}
			request := []byte("with removed as") // and the sent messages
			if c.works {
				request = carriedOut("commit")
			}
			var struck <-chan struct{}
			switch {
			case !c.committed:
				struck = e.broker.proxy.LoseRequest(request)
			case c.works:
				struck = e.broker.proxy.LoseReply(request, ready)
			default: // as it is prepared before
				struck = e.broker.proxy.LoseReply([]byte("sent0"), ready)
			}
			err := d.CompleteWith(t.Context(), []core.Outgoing{letter("sent", outputQueue)})
			next(t, "the connection breaks", struck)
			written, sent, waiting := 0, 0, 0
			switch {
			case c.committed:
				if err != nil {
					t.Errorf("CompleteWith returns %v, want nil: the message is gone, and no other receiver can have had it", err)
				}
				sent = 1
			case c.works:
				if err == nil || errors.Is(err, core.ErrLockLost) {
					t.Errorf("CompleteWith returns %v, want a failure of the handler", err)
				}
				if err := d.Abandon(t.Context(), err); err != nil {
					t.Errorf("Abandon after that: %v", err)
				}
				waiting = 1
			default: // nothing is lost, so that it can be repeated
				if err != nil {
					t.Errorf("CompleteWith returns %v, want nil: it can commit on another connection", err)
				}
				sent = 1
			}
			if c.works && c.committed {
				written = 1
			}
			for name, n := range map[string][2]int{
				"rows of the handler": {e.written(), written},
				"messages sent":       {e.number(`select count(*) from ` + outputQueue), sent},
				"messages waiting":    {e.waiting(), waiting},
			} {
				if n[0] != n[1] {
					t.Errorf("%d %s, want %d", n[0], name, n[1])
				}
			}
			if waiting == 1 {
				redelivered := receive(t, r)
				if n := redelivered.Incoming().DeliveryCount; n != 2 {
					t.Errorf("the message is redelivered with the count %d, want 2", n)
				}
				complete(t, redelivered)
			}
		})
	}
}
