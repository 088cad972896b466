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

// Requests returns the number of requests by operation, including refused ones, since the
// start or ResetRequests: for the queue or topic with a name, or for all with "".
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

// requestsPath is the path at which GET returns the counts of Requests as JSON, with
// ?name=NAME for one queue or topic. Other processes than the server's read the counts
// through it. Its requests are not counted.
const requestsPath = "/-/requests"

func (s *Server) answerRequests(w http.ResponseWriter, r *http.Request) {
	answer, err := json.Marshal(s.Requests(r.URL.Query().Get("name")))
	if err != nil {
		s.failed(err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a client that has closed the connection needs no answer
}

// RequestsAt returns the counts of Requests from a server in another process, which answers
// at endpoint.
func RequestsAt(ctx context.Context, endpoint, name string) (_ map[string]int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+requestsPath+"?name="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, fmt.Errorf("sqs: requests: %w", err)
	}
	r.Close = true // no connection stays open for the next call
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
