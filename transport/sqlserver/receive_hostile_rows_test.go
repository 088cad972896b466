package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

const (
	maxInteger = "2147483647"
	minInteger = "-2147483648"
)

// hostileRow is a row that Reprise never writes, but a role with the right to insert into
// the table can.
type hostileRow struct {
	columns, values string
	tooMany         bool // its deliveries: it goes to the error queue without an attempt
}

// hostileRows has no two rows with the same seq.
var hostileRows = map[string]hostileRow{
	"most deliveries":                    {"deliveries", maxInteger, true},
	"almost most deliveries":             {"deliveries", maxInteger + " - 1", true},
	"least deliveries":                   {"deliveries", minInteger, false},
	"almost least deliveries":            {"deliveries", minInteger + " + 1", false},
	"negative deliveries":                {"deliveries", "-1", false},
	"most claims":                        {"claims", maxInteger, false},
	"almost most claims":                 {"claims", maxInteger + " - 1", false},
	"least claims":                       {"claims", minInteger, false},
	"negative claims":                    {"claims", "-1", false},
	"most deliveries and claims":         {"deliveries, claims", maxInteger + ", " + maxInteger, true},
	"least deliveries and claims":        {"deliveries, claims", minInteger + ", " + minInteger, false},
	"most seq":                           {"seq", "9223372036854775807", false},
	"least seq":                          {"seq", "-9223372036854775808", false},
	"due at -infinity":                   {"due", "'-infinity'", false},
	"due before Christ":                  {"due", "'4713-01-01 00:00:00+00 BC'", false},
	"due at the zero time":               {"due", "'0001-01-01 00:00:00+00'", false},
	"expires at infinity":                {"expires", "'infinity'", false},
	"expires at the last moment":         {"expires", "'294276-12-31 23:59:59.999999'", false},
	"leased until infinity":              {"leased_until", "'infinity'", false},
	"leased until the last moment":       {"leased_until", "'294276-12-31 23:59:59.999999+00'", false},
	"leased for a year":                  {"leased_until", "now() + interval '1 year'", false},
	"leased until -infinity":             {"leased_until", "'-infinity'", false},
	"a last error of 1 MB":               {"last_error", "repeat('x', 1000000)", false},
	"least of all":                       {"deliveries, claims, seq, due, leased_until", minInteger + ", " + minInteger + ", -9223372036854775807, '-infinity', '-infinity'", false},
	"most of all":                        {"deliveries, claims, seq, due, leased_until", maxInteger + ", " + maxInteger + ", 9223372036854775806, '-infinity', 'infinity'", true},
	"most claims, leased until infinity": {"claims, leased_until", maxInteger + ", 'infinity'", false},
}

// Such a row neither ends Run nor is retried for ever, whether its handler fails or not,
// and holds up no other message.
func TestReceive_HostileRows(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	for name, row := range hostileRows {
		for _, mode := range bothModes {
			for _, outcome := range []string{rowSucceeds, rowFails} {
				t.Run(name+"/"+mode.String()+"/"+outcome, func(t *testing.T) {
					t.Parallel()
					e := newRowsEndpoint(t, db, sqlserver.Config{}, mode)
					e.insert(t, outcome, row)
					e.run(t)
					e.checkRow(t, outcome, row)
					e.checkHealthy(t)
				})
			}
		}
	}
}

// All of them at once, over database/sql and where nothing is given back.
func TestReceive_HostileRowsTogether(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	for over, cfg := range map[string]sqlserver.Config{"pgx": {}, "database/sql": {DB: openDB(t, db.url)}} {
		for _, mode := range allModes {
			t.Run(over+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				outcome := rowFails
				if mode == core.TransactionNone {
					outcome = rowSucceeds
				}
				e := newRowsEndpoint(t, db, cfg, mode)
				for name, row := range hostileRows {
					e.insert(t, outcome+" "+name, row)
				}
				e.run(t)
				for name, row := range hostileRows {
					e.checkRow(t, outcome+" "+name, row)
				}
				e.checkHealthy(t)
			})
		}
	}
}

// The actions of a row's handler.
const (
	rowSucceeds = "succeeds"
	rowFails    = "fails"
)

// rowsEndpoint is an endpoint that handles rows which were inserted past the transport,
// beside healthy messages.
type rowsEndpoint struct {
	*core.Endpoint
	db                *testDatabase
	queue, errorQueue string
	attempts          int    // of a handler that fails
	races             int    // how many more there may be: the other slot had the message before the failure was counted
	before            func() // the first row, or nil
	handle            func(ctx context.Context) error
	log               logLines

	first   sync.Once
	mu      sync.Mutex
	ran     map[string]int // by body
	healthy atomic.Int64
}

const healthyMessages = 20

var rowsQueues atomic.Int64

func newRowsEndpoint(t *testing.T, db *testDatabase, cfg sqlserver.Config, mode core.TransactionMode, change ...func(*core.Config)) *rowsEndpoint {
	t.Helper()
	n := rowsQueues.Add(1)
	e := &rowsEndpoint{db: db, queue: fmt.Sprint("rows", n), errorQueue: fmt.Sprint("error", n), attempts: 3, ran: map[string]int{}}
	e.handle = func(context.Context) error { return nil }
	provision(t, db.open(t, sqlserver.Config{}), e.queue, e.errorQueue)
	c := core.Config{Transactions: mode, Concurrency: 2, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &e.log), nil))}
	c.Recoverability.ErrorQueue = e.errorQueue
	c.Recoverability.Delayed.NumberOfRetries = core.Off
	c.Recoverability.Immediate.NumberOfRetries = e.attempts - 1
	if mode == core.TransactionNone {
		c.Recoverability.Immediate = core.Immediate{NumberOfRetries: core.Off}
		e.attempts = 1
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	if e.Endpoint, err = core.New(e.queue, db.open(t, cfg), c); err != nil {
		t.Fatal(err)
	}
	core.Handle(e.Endpoint, rowType, func(ctx context.Context, _ *core.Message, body []byte) error {
		if e.before != nil {
			e.first.Do(e.before)
		}
		e.mu.Lock()
		e.ran[string(body)]++
		e.mu.Unlock()
		if err := e.handle(ctx); err != nil {
			return err
		}
		if strings.HasPrefix(string(body), rowFails) {
			return errors.New("as ordered")
		}
		return nil
	})
	core.Handle(e.Endpoint, healthyType, func(context.Context, *core.Message, placeOrder) error {
		e.healthy.Add(1)
		return nil
	})
	return e
}

// insert adds a row with a body, which begins with its handler's action.
func (e *rowsEndpoint) insert(t *testing.T, body string, row hostileRow) {
	t.Helper()
	headers, columns, values := `{"NServiceBus.EnclosedMessageTypes": "Row"}`, row.columns, row.values
	if columns != "" {
		columns, values = ", "+columns, ", "+values
	}
	e.db.exec(t, `insert into `+e.db.table(e.queue)+` (headers, body`+columns+`) values ($1, $2`+values+`)`, headers, []byte(body))
}

// run runs it, and sends the healthy messages.
func (e *rowsEndpoint) run(t *testing.T) {
	t.Helper()
	run(t, e.Endpoint)
	for range healthyMessages {
		if err := e.Send(t.Context(), e.queue, healthyType.Of(placeOrder{"A-1"})); err != nil {
			t.Fatal(err)
		}
	}
}

// runs returns how often the handler ran for a body.
func (e *rowsEndpoint) runs(body string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ran[body]
}

// failed returns how many rows of a body are in the error queue.
func (e *rowsEndpoint) failed(t *testing.T, body string) string {
	t.Helper()
	return e.db.column(t, `select count(*)::text from `+e.db.table(e.errorQueue)+` where body = $1`, []byte(body))[0]
}

// checkRow waits until a row is where it belongs.
func (e *rowsEndpoint) checkRow(t *testing.T, body string, row hostileRow) {
	t.Helper()
	want, moved := e.attempts, "1"
	switch {
	case row.tooMany:
		want = 0
	case strings.HasPrefix(body, rowSucceeds):
		want, moved = 1, "0"
	}
	left := func() string {
		return e.db.column(t, `select count(*)::text from `+e.db.table(e.queue)+` where body = $1`, []byte(body))[0]
	}
	await(t, body+": it is out of the queue", func() bool { return e.runs(body) >= want && e.failed(t, body) == moved && left() == "0" })
	if n := e.runs(body); n < want || n > want+e.races {
		t.Errorf("%s: the handler ran %d times, want %d", body, n, want)
	}
}

// checkHealthy waits until the healthy messages are handled.
func (e *rowsEndpoint) checkHealthy(t *testing.T) {
	t.Helper()
	await(t, "the healthy messages are handled", func() bool { return e.healthy.Load() == healthyMessages })
	if h := e.Health(); !h.Connected || h.Undelivered > 0 {
		t.Errorf("health %+v", h)
	}
}

// Rows of delayed messages may have any count of tries and be due at any time, too. One
// whose queue is gone is tried again, or moved to the error queue.
func TestDelayed_HostileRows(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	e := newRowsEndpoint(t, db, sqlserver.Config{}, core.TransactionReceiveOnly)
	waiting := db.table("reprise_delayed")
	for body, row := range map[string]string{
		"least tries": minInteger + ", now()", "negative tries": "-5, '-infinity'", "most tries": maxInteger + ", now()", "never due": "0, 'infinity'",
	} {
		db.exec(t, `insert into `+waiting+` (destination, headers, body, attempts, due) values ($1, '{}', $2, `+row+`)`, db.table("gone"), []byte(body))
	}
	e.run(t)
	for _, body := range []string{"least tries", "negative tries"} {
		await(t, body+": it is tried again", func() bool {
			return strings.Join(db.column(t, `select attempts::text from `+waiting+` where body = $1 and attempts > 0`, []byte(body)), "") != ""
		})
	}
	await(t, "the one with the most tries is moved", func() bool { return e.failed(t, "most tries") == "1" })
	if n := e.log.count("cannot subtract"); n > 0 {
		t.Errorf("%d errors about a message that is never due", n)
	}
	e.checkHealthy(t)
}
