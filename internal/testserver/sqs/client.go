package sqs

import (
	"io"
	"net/http"
)

// ForSDK returns a client for the AWS SDK that sends requests through base. The SDK closes a request's body as soon as
// an answer begins, and the body's WriteTo then returns io.EOF: net/http takes that for an error of the request, and closes
// the connection in the middle of the answer. Bodies have no WriteTo here.
func ForSDK(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: withoutWriteTo{base}}
}

type withoutWriteTo struct{ http.RoundTripper }

func (w withoutWriteTo) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		body := r.Body
		r = r.WithContext(r.Context()) // a copy: the caller's request must not change
		r.Body = struct{ io.ReadCloser }{body}
	}
	return w.RoundTripper.RoundTrip(r)
}
