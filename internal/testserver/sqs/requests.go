//go:build darwin || linux

package sqs

import "sync"

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
