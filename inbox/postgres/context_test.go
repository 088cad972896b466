package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/inbox/postgres"
)

// stalling is a proxy before the server, which forwards nothing any more when it stalls.
type stalling struct {
	net.Listener
	to string

	mu      sync.Mutex
	stalled chan struct{} // closed when it does
	conns   []net.Conn
}

func newStalling(t *testing.T, to string) *stalling {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stalling{Listener: listener, to: to, stalled: make(chan struct{})}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.add(conn)
			go p.serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, conn := range p.conns {
			_ = conn.Close()
		}
	})
	return p
}

func (p *stalling) add(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
}

func (p *stalling) stall() { close(p.stalled) }

func (p *stalling) isStalled() bool {
	select {
	case <-p.stalled:
		return true
	default:
		return false
	}
}

func (p *stalling) serve(client net.Conn) {
	if p.isStalled() {
		return // the connection stays open
	}
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.add(server)
	forward := func(to io.Writer, from io.Reader) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if p.isStalled() {
				return
			}
			if err != nil {
				_ = client.Close()
				_ = server.Close()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go forward(server, client)
	forward(client, server)
}

// through returns a store through the proxy, with a pool of one connection.
func (d *database) through(t *testing.T) (provisioned, *stalling) {
	at, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newStalling(t, at.Host)
	at.Host = proxy.Addr().String()
	d.url = at.String()
	if !d.bySQL {
		store, err := postgres.New(d.pool(1), postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return store, proxy
	}
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { go func(db *sql.DB) { _ = db.Close() }(db) })
	store, err := postgres.NewSQL(db, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store, proxy
}

// ends calls f with a context that ends soon, and checks that f returns an error then. A
// call that its context cannot end needs minutes.
func ends(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- f(ctx) }()
	select {
	case err := <-returned:
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s does not return when its context has ended", what)
	}
}

// A shutdown, or HandlerTimeout, ends all that waits for the database.
func TestStore_ContextEndsEachCall(t *testing.T) {
	for name, bySQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			opened(t, d)
			store, proxy := d.through(t)
			begins := func(ctx context.Context) error {
				tx, _, err := store.Begin(ctx, m1, time.Now(), time.Hour)
				if tx != nil {
					err = errors.Join(errors.New("it has begun"), tx.Rollback(context.WithoutCancel(ctx)))
					t.Error(err)
				}
				return err
			}
			tx := begin(t, store, m1)
			ends(t, "Begin with an exhausted pool", begins)
			proxy.stall()
			ends(t, "Rollback on a dead connection", tx.Rollback)
			ends(t, "Begin on a server that does not answer", begins)
		})
		t.Run(name+", commit", func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			opened(t, d)
			store, proxy := d.through(t)
			tx := begin(t, store, m1)
			proxy.stall()
			ends(t, "Commit on a dead connection", func(ctx context.Context) error { return tx.Commit(ctx, []byte("x")) })
		})
	}
}
