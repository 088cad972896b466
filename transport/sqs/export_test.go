package sqs

import "github.com/reprise-go/reprise/core"

// Pollers returns how many pollers a receiver of this package has.
func Pollers(opened core.Receiver) int {
	r := opened.(*receiver)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}
