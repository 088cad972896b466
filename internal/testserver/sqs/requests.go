//go:build darwin || linux

package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// requests counts requests.
type requests struct {
	mu sync.Mutex
	n  map[requestKey]int
}

type requestKey struct{ operation, name string }

func (r *requests) count(operation, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = map[requestKey]int{}
	}
	r.n[requestKey{operation, name}]++
}

// Requests returns how many requests there were by operation, refused ones included, since
// the start or ResetRequests: for the queue or topic with a name, or for all with "".
func (s *Server) Requests(name string) map[string]int {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	sum := map[string]int{}
	for k, n := range s.requests.n {
		if name == "" || k.name == name {
			sum[k.operation] += n
		}
	}
	return sum
}

// ResetRequests starts the count of Requests at 0.
func (s *Server) ResetRequests() {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	s.requests.n = nil
}

// requestsPath is where GET returns what Requests does, as JSON: with ?name=NAME of the queue or
// topic with a name. It is how other processes than the server's read the counts, and is not
// counted itself.
const requestsPath = "/-/requests"

func (s *Server) answerRequests(w http.ResponseWriter, r *http.Request) {
	answer, err := json.Marshal(s.Requests(r.URL.Query().Get("name")))
	if err != nil {
		s.failed(err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a client that has gone needs no answer
}

// RequestsAt returns what Requests does of a server in another process, which answers at
// endpoint.
func RequestsAt(ctx context.Context, endpoint, name string) (_ map[string]int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+requestsPath+"?name="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, fmt.Errorf("sqs: requests: %w", err)
	}
	r.Close = true // no connection waits for the next call
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("sqs: requests: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	var counts map[string]int
	if err := json.NewDecoder(response.Body).Decode(&counts); err != nil {
		return nil, fmt.Errorf("sqs: requests: %s does not answer as a test server does (%s): %w", endpoint, response.Status, err)
	}
	return counts, nil
}
