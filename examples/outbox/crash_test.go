package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// service is one in a separate process.
type service struct {
	t       *testing.T
	command *exec.Cmd
	name    string // of its connections
	address string // "http://127.0.0.1:40000"
}

var started atomic.Int64

var openAt = regexp.MustCompile(`open at (http://[0-9.:]+)\.`)

// startService starts the service on a database, and returns when it takes orders.
func startService(t *testing.T, database string) *service {
	t.Helper()
	s := &service{t: t, name: fmt.Sprintf("outbox-%d", started.Add(1))}
	s.command = exec.Command(os.Args[0])
	s.command.Env = append(os.Environ(), databaseVariable+"="+database+"&application_name="+url.QueryEscape(s.name))
	s.command.Stderr = os.Stderr
	if _, err := s.command.StdinPipe(); err != nil { // whose end tells it that this process has died
		t.Fatal(err)
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := openAt.FindStringSubmatch(lines.Text()); found != nil {
			s.address = found[1]
			return s
		}
	}
	t.Fatalf("the service has ended before it took orders")
	return nil
}

// kill ends the process as a crash does. The second time it does nothing.
func (s *service) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// post places an order for a lamp, and returns the answer's status and the order's
// path.
func (s *service) post(request string) (status int, path string, err error) {
	answer, err := http.Post(s.address+"/orders", "application/json", strings.NewReader(fmt.Sprintf(`{"Request": %q, "Item": "lamps", "Quantity": 1}`, request)))
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("Location"), nil
}

// place is post for an order that has to be placed.
func (s *service) place(request string) {
	s.t.Helper()
	if status, _, err := s.post(request); err != nil || status != http.StatusCreated {
		s.t.Fatalf("order %q: status %d, %v", request, status, err)
	}
}

// database is one that a test looks into.
type database struct {
	t    *testing.T
	conn *pgx.Conn
}

func connect(t *testing.T, url string) *database {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &database{t, conn}
}

func (d *database) exec(sql string) {
	d.t.Helper()
	if _, err := d.conn.Exec(d.t.Context(), sql); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *database) count(sql string, args ...any) (n int) {
	d.t.Helper()
	if err := d.conn.QueryRow(d.t.Context(), sql, args...).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// patience is for what never happens; the speed of the machine is not tested.
const patience = 5 * time.Minute

// await waits until a count has a value.
func (d *database) await(want int, sql string, args ...any) {
	d.t.Helper()
	deadline := time.Now().Add(patience)
	for got := d.count(sql, args...); got != want; got = d.count(sql, args...) {
		if time.Now().After(deadline) {
			d.t.Fatalf("%s %v: %d after %v, want %d", sql, args, got, patience, want)
		}
		time.Sleep(10 * time.Millisecond) // nothing in the server tells when
	}
}

const (
	waitsForLock = `select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock' and query like $2`
	connected    = `select count(*) from pg_stat_activity where application_name = $1`
	orders       = `select count(*) from reprise_outbox.orders`
	unfinished   = `select count(*) from reprise_outbox.orders where status <> 'invoiced'`
	invoices     = `select count(*) from reprise_outbox.invoices`
	sold         = `select 10000 - available from reprise_outbox.stock where item = 'lamps'`
	messages     = `select (select count(*) from reprise_outbox.billing) + (select count(*) from reprise_outbox.shop) + (select count(*) from reprise_outbox.error)`
)

// Another transaction has locked a table, so the service is sure to be at work on it
// when it is killed.
func TestCrash_AtEachStep(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		locked, statement string // where the service is when it is killed
		placed            int    // the order is placed by then
	}{
		"between the order and its message":     {"billing", "insert into%billing%", 0},
		"after the message, before the commit":  {"stock", "update%stock%", 0},
		"while the invoice is written":          {"invoices", "insert into%invoices%", 1},
		"while the event is sent and committed": {"shop", "insert into%shop%", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server.PasswordURL(server.NewDatabase(t))
			s := startService(t, url)
			db, locker := connect(t, url), connect(t, url)

			locker.exec(`begin; lock table reprise_outbox.` + tt.locked + ` in share mode`) // which lets others read
			answered := make(chan bool, 1)
			go func() {
				status, _, _ := s.post("the first")
				answered <- status == http.StatusCreated
			}()
			db.await(1, waitsForLock, s.name, tt.statement)
			if tt.placed == 1 && !<-answered { // the command may be there before the answer
				t.Error("the order was not placed, the customer has read")
			}
			s.kill()
			if tt.placed == 0 && <-answered {
				t.Error("the order was placed, the customer has read")
			}
			locker.exec(`rollback`)
			db.await(0, connected, s.name) // the server has noticed

			// For each order there is a command or, in its place, an invoice.
			for _, query := range []string{orders, sold, `select (select count(*) from reprise_outbox.billing) + (` + invoices + `)`} {
				if got := db.count(query); got != tt.placed {
					t.Errorf("after the crash, %s: %d, want %d", query, got, tt.placed)
				}
			}

			if n := db.count(`select coalesce(sum(deliveries), 0) from reprise_outbox.billing`); n != tt.placed {
				t.Errorf("the command was delivered %d times before the crash, want %d", n, tt.placed)
			}

			s = startService(t, url)
			s.place("the first") // the customer knows no better
			db.await(1, orders+` where status = 'invoiced'`)
			for query, want := range map[string]int{orders: 1, sold: 1, invoices: 1} {
				if got := db.count(query); got != want {
					t.Errorf("in the end, %s: %d, want %d", query, got, want)
				}
			}
			db.await(0, messages)
		})
	}
}

// Wherever the service is when it is killed, everything happens once.
func TestCrash_UnderLoad(t *testing.T) {
	t.Parallel()
	url := server.PasswordURL(server.NewDatabase(t))
	db := connect(t, url)
	const customers, each, crashes = 8, 25, 4

	var mu sync.Mutex // guards current
	current := startService(t, url)
	var answered atomic.Int64
	var wg sync.WaitGroup
	for customer := range customers {
		wg.Go(func() {
			for i := range each {
				request := fmt.Sprintf("%d-%d", customer, i)
				for status := 0; status != http.StatusCreated; {
					mu.Lock() // also waits for the next service to start
					s := current
					mu.Unlock()
					status, _, _ = s.post(request) // without an answer once more
					if t.Context().Err() != nil {
						return
					}
				}
				answered.Add(1)
			}
		})
	}
	for i := range crashes {
		target := int64((i + 1) * customers * each / (crashes + 1))
		for answered.Load() < target && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		current.kill()
		current = startService(t, url)
		mu.Unlock()
	}
	wg.Wait()
	db.await(0, unfinished)
	for query, want := range map[string]int{
		orders:   customers * each,
		sold:     customers * each,
		invoices: customers * each,
		`select count(distinct order_id) from reprise_outbox.invoices`: customers * each,
		messages: 0,
	} {
		if got := db.count(query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	url := server.PasswordURL(server.NewDatabase(t))
	s := startService(t, url)
	db := connect(t, url)

	status, path, err := s.post("my first")
	if err != nil || status != http.StatusCreated || path != "/orders/1" {
		t.Fatalf("an order: %d %q, %v", status, path, err)
	}
	if _, second, _ := s.post("my first"); second != path {
		t.Errorf("the same order once more is %q, want %q", second, path)
	}
	db.await(0, unfinished)
	tests := map[string]struct {
		method, path, body string
		status             int
		answer             string
	}{
		"what became of an order": {"GET", path, ``, http.StatusOK, "invoiced"},
		"an order that is not":    {"GET", "/orders/77", ``, http.StatusNotFound, "no such order"},
		"no JSON":                 {"POST", "/orders", `two lamps`, http.StatusBadRequest, "an order looks like this"},
		"nothing ordered":         {"POST", "/orders", `{"Request": "b", "Item": "lamps"}`, http.StatusBadRequest, "an order looks like this"},
		"more than there are":     {"POST", "/orders", `{"Request": "c", "Item": "lamps", "Quantity": 10000}`, http.StatusConflict, "out of stock"},
		"something else":          {"POST", "/orders", `{"Request": "d", "Item": "cats", "Quantity": 1}`, http.StatusConflict, "there are no cats"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tt.method, s.address+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text := bufio.NewScanner(answer.Body)
			text.Scan()
			if answer.StatusCode != tt.status || !strings.Contains(text.Text(), tt.answer) {
				t.Errorf("%d %q, want %d and %q", answer.StatusCode, text.Text(), tt.status, tt.answer)
			}
		})
	}
	if n := db.count(messages); n != 0 {
		t.Errorf("there are %d messages, but only one order was placed", n)
	}

	// Ctrl-C is no error.
	if err := s.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.command.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
