//go:build darwin || linux

package sqs

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
)

// buffers are for bodies and answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// An exchange is a request and its answer.
type exchange struct {
	server  *Server
	service *service
	call    *api.Call
	fault   *fault // that strikes it; nil: none
	w       http.ResponseWriter
}

// begin counts a request, and cuts its connection if a fault says so.
func (x *exchange) begin(operation, name string) {
	x.server.requests.count(operation, name)
	x.fault = x.server.faults.due(operation, name)
	if x.fault == nil {
		return
	}
	if x.fault.kind == cutBefore {
		panic(http.ErrAbortHandler)
	}
	x.call.FailEntry = x.fault.entryFailure
}

// refusal returns the error of a request that must not be executed.
func (x *exchange) refusal(r *http.Request) *api.Error {
	if err := x.server.guard.check(r, x.server.clock.Now()); err != nil {
		return err
	}
	if f := x.fault; f != nil && f.kind == reject {
		return f.err
	}
	return nil
}

// finish writes the changes of a request to the journal, and lets a fault strike, before
// the request is answered.
func (x *exchange) finish() {
	if err := x.service.queues.Flush(); err != nil {
		x.server.failed(err)
		panic(http.ErrAbortHandler)
	}
	if x.server.clock.Ahead() != 0 { // otherwise net/http adds the time
		x.w.Header().Set("Date", x.server.clock.Now().Time().UTC().Format(http.TimeFormat))
	}
	f := x.fault
	if f == nil {
		return
	}
	switch f.kind {
	case loseAnswer:
		panic(http.ErrAbortHandler)
	case delayAnswer:
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-x.call.Context.Done():
		}
	default:
	}
}

func (x *exchange) answer(status int, contentType string, body []byte) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // a client that has closed the connection needs no answer
}
