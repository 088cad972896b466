//go:build darwin || linux

package sqs

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is larger than any request that the service accepts.
const maxBody = 8 << 20

// buffers are for bodies and answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// ServeHTTP implements http.Handler: SQS's JSON protocol, and the query protocol of SNS and
// STS. Requests may use any path except the path of the request counts.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == requestsPath {
		s.answerRequests(w, r)
		return
	}
	st := s.current()
	body := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(body)
	body.Reset()
	if _, err := body.ReadFrom(io.LimitReader(r.Body, maxBody)); err != nil {
		panic(http.ErrAbortHandler) // the client has closed the connection
	}
	c := &call{context: r.Context(), host: r.Host, account: s.cfg.Account, sender: senderID}
	x := &exchange{server: s, store: st, call: c, w: w}
	w.Header().Set("X-Amzn-Requestid", newID())
	if name, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."); ok {
		x.json(r, name, body.Bytes())
		return
	}
	x.query(r, body.String())
}

// senderID is the id of the user in whose name all messages are sent.
const senderID = "AIDACKCEVSQ6C2EXAMPLE"

// An exchange is a request and its answer.
type exchange struct {
	server *Server
	store  *store
	call   *call
	w      http.ResponseWriter
}

// json executes an operation of SQS.
func (x *exchange) json(r *http.Request, name string, body []byte) {
	op, ok := operations[name]
	if !ok {
		x.answerJSON(nil, failure("InvalidAction", "The action %s is not valid for this endpoint.", name))
		return
	}
	request, err := op.decode(body)
	if err != nil {
		x.answerJSON(nil, failure("SerializationException", "%v", err))
		return
	}
	x.begin(name, request.target())
	var answer any
	wrong := x.refusal(r)
	if wrong == nil {
		answer, wrong = op.run(x.store, x.call, request)
	}
	x.finish()
	x.answerJSON(answer, wrong)
}

// begin counts a request, and cuts its connection if a fault says so.
func (x *exchange) begin(operation, name string) {
	x.call.operation = operation
	x.server.requests.count(operation, name)
	x.call.fault = x.server.faults.due(operation, name)
	if x.call.fault != nil && x.call.fault.kind == cutBefore {
		panic(http.ErrAbortHandler)
	}
}

// refusal returns the error of a request that must not be executed.
func (x *exchange) refusal(r *http.Request) *apiError {
	if err := x.server.guard.check(r, x.store.clock.now()); err != nil {
		return err
	}
	if f := x.call.fault; f != nil && f.kind == reject {
		return f.err
	}
	return nil
}

// finish writes the changes of a request to the journal, and lets a fault strike, before
// the request is answered.
func (x *exchange) finish() {
	if err := x.store.flush(); err != nil {
		x.server.failed(err)
		panic(http.ErrAbortHandler)
	}
	if x.store.clock.ahead() != 0 { // otherwise net/http adds the time
		x.w.Header().Set("Date", x.store.clock.now().time().UTC().Format(http.TimeFormat))
	}
	f := x.call.fault
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
		case <-x.call.context.Done():
		}
	default:
	}
}

func (x *exchange) answerJSON(answer any, err *apiError) {
	status := http.StatusOK
	if err != nil {
		status = err.status
		x.w.Header().Set("X-Amzn-Query-Error", err.query+";"+err.fault())
		answer = struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}{err.typeName(), err.message}
	}
	out := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(out)
	out.Reset()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		x.server.failed(err)
		panic(http.ErrAbortHandler)
	}
	x.answer(status, "application/x-amz-json-1.0", out.Bytes())
}

func (x *exchange) answer(status int, contentType string, body []byte) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // a client that has closed the connection needs no answer
}
