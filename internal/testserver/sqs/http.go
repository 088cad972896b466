//go:build darwin || linux

package sqs

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
)

// maxBody is larger than any request that the service accepts.
const maxBody = 8 << 20

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
	c := &api.Call{Context: r.Context(), Host: r.Host, Account: s.cfg.Account, Sender: senderID}
	x := &exchange{server: s, service: st, call: c, w: w}
	w.Header().Set("X-Amzn-Requestid", content.NewID())
	if name, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."); ok {
		x.json(r, name, body.Bytes())
		return
	}
	x.query(r, body.String())
}

// senderID is the id of the user in whose name all messages are sent.
const senderID = "AIDACKCEVSQ6C2EXAMPLE"

// json executes an operation of SQS.
func (x *exchange) json(r *http.Request, name string, body []byte) {
	op, ok := queues.Operations[name]
	if !ok {
		x.answerJSON(nil, api.Failure("InvalidAction", "The action %s is not valid for this endpoint.", name))
		return
	}
	request, err := op.Decode(body)
	if err != nil {
		x.answerJSON(nil, api.Failure("SerializationException", "%v", err))
		return
	}
	x.begin(name, request.Target())
	var answer any
	wrong := x.refusal(r)
	if wrong == nil {
		answer, wrong = op.Run(x.service.queues, x.call, request)
	}
	x.finish()
	x.answerJSON(answer, wrong)
}

func (x *exchange) answerJSON(answer any, err *api.Error) {
	status := http.StatusOK
	if err != nil {
		status = err.Status
		x.w.Header().Set("X-Amzn-Query-Error", err.Query+";"+err.Fault())
		answer = struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}{err.TypeName(), err.Message}
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
