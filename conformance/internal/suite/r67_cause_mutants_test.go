package suite

import (
	"fmt"
	"hash/fnv"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// changesCause changes the fingerprint of failed messages; "" drops it.
func changesCause(change func(h core.Headers) string) func() changes {
	return func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				h := &out[i].Headers
				if out[i].Reason != core.ReasonMoveToError || h.Get(headers.Cause) == "" {
					continue
				}
				if cause := change(*h); cause != "" {
					h.Set(headers.Cause, cause)
				} else {
					h.Del(headers.Cause)
				}
			}
			return out
		})
	}
}

// hashed returns a fingerprint of a text as it is.
func hashed(text string) string {
	h := fnv.New64a()
	h.Write([]byte(text))
	return fmt.Sprintf("1:%012x", h.Sum64()>>16|1)
}

var causeMutants = []mutant{
	{rule: "R67", name: "has another cause for another number", breaks: changesCause(func(h core.Headers) string {
		return hashed(h.Get(headers.ExceptionType) + h.Get(headers.ExceptionMessage))
	})},
	{rule: "R67", name: "has one cause for errors of two types", breaks: changesCause(func(h core.Headers) string {
		if h.Get(headers.ExceptionType) == "*suite.quotaError" {
			return "1:aaaaaaaaaaaa"
		}
		if h.Get(headers.ExceptionMessage) == "dial tcp 10.0.0.1:5432: connection refused" || h.Get(headers.ExceptionMessage) == "dial tcp 10.244.7.12:5432: connection refused" {
			return "1:aaaaaaaaaaaa"
		}
		return h.Get(headers.Cause)
	})},
	{rule: "R67", name: "drops the cause with the stack trace", config: limited, breaks: changesCause(func(h core.Headers) string {
		if _, ok := h.Lookup(headers.ExceptionStackTrace); !ok {
			return ""
		}
		return h.Get(headers.Cause)
	})},
	{rule: "R67", name: "keeps the cause that a sender has written", breaks: changesCause(func(core.Headers) string { return "1:000000000000" })},
	{rule: "R67", name: "cuts headers at 8 bytes", breaks: changesCause(func(h core.Headers) string { return h.Get(headers.Cause)[:8] })},
}
