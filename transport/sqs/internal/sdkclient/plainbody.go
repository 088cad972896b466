package sdkclient

import (
	"io"
	"net/http"
)

// PlainBodies sends requests with bodies that have no method WriteTo. The WriteTo of the
// SDK's bodies returns io.EOF once the SDK has closed them, which it does as soon as an
// answer begins to arrive. net/http takes this for an error of the request, closes the
// connection, and loses the rest of the answer: its messages would stay locked until
// their visibility timeout ends.
type PlainBodies struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p PlainBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		body := r.Body
		r = r.WithContext(r.Context()) // a copy, because the caller's request must not change
		r.Body = struct{ io.ReadCloser }{body}
	}
	return p.RoundTripper.RoundTrip(r)
}
