package transport

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core/queues"
)

// pageBytes is the MaxBytes of a request that has none.
const pageBytes = 16 << 20

// ErrTooManyKeys is the error of Browse for Keys whose messages are more than MaxBytes allows.
var ErrTooManyKeys = Permanent(errors.New("the messages with these Keys have more bytes than Request.MaxBytes; ask for fewer keys or WithoutBody, or raise MaxBytes"))

// PrepareBrowse checks the request for a page of messages, and sets its MaxBytes if they are left
// out. An adapter calls it first in Browse. The error is [Permanent].
func PrepareBrowse(r *queues.Request) error {
	switch {
	case r.Limit < 1:
		return Permanent(fmt.Errorf("Request.Limit is %d; set at least 1", r.Limit))
	case r.MaxBytes < 0:
		return Permanent(fmt.Errorf("Request.MaxBytes is %d; set at least 1, or 0 for %d", r.MaxBytes, pageBytes))
	case r.Keys != nil && r.After != "":
		return Permanent(errors.New("Request has both Keys and After; remove one of them"))
	case len(r.Keys) > r.Limit:
		return Permanent(fmt.Errorf("Request has %d Keys, and Limit is %d; ask for fewer", len(r.Keys), r.Limit))
	case r.MaxBytes == 0:
		r.MaxBytes = pageBytes
	}
	return nil
}
