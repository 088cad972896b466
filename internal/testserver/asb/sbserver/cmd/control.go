//go:build darwin || linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	testserver "github.com/reprise-go/reprise/internal/testserver/asb"
	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
)

// control lets another process make the server fail, by HTTP: see package testserver/asb
// for the requests. Its methods may be called concurrently.
type control struct {
	server *sbserver.Server

	mu    sync.Mutex
	clear []func() // these end the faults
}

// newControl returns the handler of the control address.
func newControl(s *sbserver.Server) http.Handler {
	c := &control{server: s}
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (reply any, err error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			reply, err := f(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(reply) // the client may have disconnected
		})
	}
	handle("POST "+testserver.PathFaults, c.inject)
	handle("DELETE "+testserver.PathFaults, c.clearFaults)
	handle("POST "+testserver.PathDetachLinks, func(*http.Request) (any, error) {
		return s.DetachLinks("", amqp10.Errorf(amqp10.ErrDetachForced, "The link was detached by the service.")), nil
	})
	handle("POST "+testserver.PathCloseConnections, func(*http.Request) (any, error) {
		return s.CloseConnections(amqp10.Errorf(amqp10.ErrConnectionForced, "The connection was closed by the service.")), nil
	})
	handle("POST "+testserver.PathExpireLocks, c.expireLocks)
	handle("GET "+testserver.PathCounts, c.counts)
	return mux
}

var actions = map[testserver.Action]sbserver.Action{
	testserver.Proceed: sbserver.Proceed, testserver.Refuse: sbserver.Refuse, testserver.Silence: sbserver.Silence,
	testserver.Detach: sbserver.Detach, testserver.CloseConnection: sbserver.CloseConnection, testserver.Cut: sbserver.Cut,
}

// maxRequest is the most bytes of a request.
const maxRequest = 1 << 16

func (c *control) inject(r *http.Request) (any, error) {
	var f testserver.Fault
	body := json.NewDecoder(io.LimitReader(r.Body, maxRequest))
	body.DisallowUnknownFields()
	if err := body.Decode(&f); err != nil {
		return nil, fmt.Errorf("the request is no fault: %w", err)
	}
	action, known := actions[f.Action]
	if !known {
		return nil, fmt.Errorf("the action %q is not known", f.Action)
	}
	fault := sbserver.Fault{Times: f.Times, TakesEffect: f.TakesEffect, Delay: f.Delay, Action: action}
	for _, op := range f.Ops {
		fault.Ops = append(fault.Ops, sbserver.Op(op))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear = append(c.clear, c.server.Inject(fault))
	return len(c.clear), nil
}

func (c *control) clearFaults(*http.Request) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.clear {
		end()
	}
	n := len(c.clear)
	c.clear = nil
	return n, nil
}

// expireLocks makes the locks in all queues expire, and replies with the number of
// messages.
func (c *control) expireLocks(*http.Request) (any, error) {
	queues, err := c.server.Broker().Queues()
	if err != nil {
		return nil, err
	}
	sum := 0
	for _, q := range queues {
		n, err := c.server.ExpireLocks(q.Name)
		if err != nil {
			return nil, err
		}
		sum += n
	}
	return sum, nil
}

func (c *control) counts(*http.Request) (any, error) {
	counts := map[string]int{}
	for o, n := range c.server.Counts() {
		counts[string(o.Op)] += n
	}
	return counts, nil
}
