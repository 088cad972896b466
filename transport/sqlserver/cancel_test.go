package sqlserver_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// delayCancels returns the address of a proxy to the server that delays requests to cancel a statement.
func delayCancels(t *testing.T, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const cancelRequest = 80877102
	forward := func(client net.Conn) {
		defer client.Close()
		var start [8]byte // the length and the kind of the first message
		backend, err := net.Dial("tcp", server.Addr())
		if err != nil {
			return
		}
		defer backend.Close()
		if _, err := io.ReadFull(client, start[:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(start[4:]) == cancelRequest {
			time.Sleep(delay)
		}
		go func() {
			_, _ = backend.Write(start[:])
			_, _ = io.Copy(backend, client)
			_ = backend.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(client, backend)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go forward(client)
		}
	}()
	return l.Addr().String()
}

// A request to cancel a statement that has ended cancels no later statement of its connection.
func TestCancel_LateRequestDoesNotCancelTheNextStatement(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{URL: postgres.Via(db.url, delayCancels(t, 150*time.Millisecond))})
	provision(t, transport, "orders")
	send(t, transport, letter("1", "orders"))
	d := receive(t, openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive))
	ctx := d.BindContext(t.Context())
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_ = work(short, `select pg_sleep(0.1)`) // it ends before the request arrives
	if err := work(ctx, `select pg_sleep(1)`); err != nil {
		t.Errorf("the next statement: %v", err)
	}
	complete(t, d)
}

// A connection is closed if a request to cancel its statement is not answered. The statement may have succeeded, and
// then nothing else says so: the pool does not lend that connection again.
func TestCancel_ClosedConnectionLeavesThePool(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	pool := db.open(t, sqlserver.Config{URL: postgres.Via(db.url, delayCancels(t, time.Minute))}).Pool()
	for range 3 {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _ = pool.Exec(short, `select pg_sleep(0.1)`)
		cancel()
		if _, err := pool.Exec(t.Context(), `select 1`); err != nil {
			t.Errorf("the next statement: %v", err)
		}
	}
}
