package api

import "context"

// A Call is a request to one of the services.
type Call struct {
	Context context.Context
	Host    string // as the client names the server; the server uses it in URLs
	Account string
	Sender  string // the id of the caller
	// FailEntry returns the error with which an entry of a batch has to fail, or nil; nil: none has to.
	FailEntry func(i int) *Error
}

// QueueURL returns the URL of a queue, with the host that the client calls.
func (c *Call) QueueURL(name string) string {
	return "http://" + c.Host + "/" + c.Account + "/" + name
}

// EntryFailure returns the error with which an entry of a batch has to fail, or nil.
func (c *Call) EntryFailure(i int) *Error {
	if c.FailEntry == nil {
		return nil
	}
	return c.FailEntry(i)
}
