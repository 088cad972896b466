package sqlserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoft"
	_ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
)

// standIn speaks the protocol of Microsoft SQL Server (MS-TDS), so that go-mssqldb is
// tested too. It understands no SQL: a test sets its answers to
// statements, and any other statement changes no row.
type standIn struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup

	mu           sync.Mutex // guards what follows
	replies      map[string][]reply
	conns        map[net.Conn]struct{}
	seen         []request
	transactions uint64
}

// request is a statement, or the begin, commit or rollback of a transaction.
type request struct {
	text        string
	declared    string
	args        map[string]any
	transaction uint64 // that the client believes to be in; 0: none
}

const (
	begins    = "(begin)"
	commits   = "(commit)"
	rollsBack = "(rollback)"
)

// reply is what the server says to a statement.
type reply struct {
	rows   [][]any
	err    *mssql.Error
	ends   bool // the transaction, as the victim of a deadlock does
	severs bool // the connection, without a word
	// never is closed when the statement has come. There is no answer, until the client
	// does not want it any more.
	never chan struct{}
}

func failsWith(number int32, class uint8) reply {
	return reply{err: &mssql.Error{Number: number, Class: class, State: 1, Message: fmt.Sprintf("this is error %d", number)}}
}

// startStandIn returns a stand-in that has a queue of Reprise's by every name.
func startStandIn(t *testing.T) *standIn {
	t.Helper()
	port, err := loopback.Reserve() // so that no other server answers in its place once it is stopped
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := port.Release(); err != nil {
			t.Error(err)
		}
	})
	listener, err := net.Listen("tcp", port.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{t: t, listener: listener, replies: map[string][]reply{}, conns: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *standIn) url(options ...string) string {
	return "sqlserver://somebody:secret@" + s.listener.Addr().String() + "?" + strings.Join(append(options, "database=shop", "encrypt=disable"), "&")
}

// says adds replies to a statement, one for each time it comes.
func (s *standIn) says(text string, replies ...reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[text] = append(s.replies[text], replies...)
}

func (s *standIn) reply(r request) (a reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r)
	if next := s.replies[r.text]; len(next) > 0 {
		s.replies[r.text] = next[1:]
		return next[0]
	}
	if looksAtTable(r) {
		for _, c := range (microsoft.Dialect{}).Wanted(dialect.Table{}, false) {
			a.rows = append(a.rows, []any{c.Name, c.Kind})
		}
	}
	return a
}

func looksAtTable(r request) bool { return strings.Contains(r.text, ".sys.columns") }

// requests returns what has come since it was asked last, but for what only looks.
func (s *standIn) requests() (list []request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if !strings.HasPrefix(r.text, "select top (1)") && !looksAtTable(r) {
			list = append(list, r)
		}
	}
	s.seen = nil
	return list
}

func (s *standIn) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			if err := s.serve(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				s.t.Logf("a connection to the stand-in ended: %v", err)
			}
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// hangUp severs every connection.
func (s *standIn) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

func (s *standIn) stop() {
	_ = s.listener.Close()
	s.hangUp()
	s.wg.Wait()
}

func (s *standIn) serve(conn net.Conn) error {
	in := bufio.NewReader(conn)
	var transaction uint64
	for {
		kind, body, err := readMessage(in)
		if err != nil {
			return err
		}
		var out tokens
		switch kind {
		case packetPrelogin: // neither encryption nor several results at a time
			out.Write([]byte{0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 14, 0, 0, 0, 0, 0, 2})
		case packetLogin:
			out.loginAck()
			out.done(0, nil)
		case packetAttention:
			out.done(doneAttention, nil)
		case packetBatch, packetRPC, packetTransaction:
			r, err := parseRequest(kind, body)
			if err != nil {
				return err
			}
			a := s.reply(r)
			if a.severs {
				return nil
			}
			if a.never != nil {
				close(a.never)
				continue
			}
			switch {
			case a.err == nil && r.text == begins:
				s.mu.Lock()
				s.transactions++
				transaction = s.transactions
				s.mu.Unlock()
				out.transaction(8, transaction)
			case a.err == nil && r.text == commits:
				out.transaction(9, transaction)
			case r.text == rollsBack:
				out.transaction(10, transaction)
			}
			if len(a.rows) > 0 {
				out.result(a.rows)
			}
			if a.err != nil {
				out.error(a.err)
			}
			if a.ends {
				out.transaction(10, transaction)
			}
			out.done(0, a.err)
		default:
			return fmt.Errorf("a packet of type %d", kind)
		}
		if err := writeMessage(conn, out.Bytes()); err != nil {
			return err
		}
	}
}
