package suite

import (
	"context"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var sentReturnMutants = []mutant{
	{rule: "C38", name: "keeps the count of the deliveries before a return", breaks: countsByID},
	{rule: "C38", name: "drops the headers of a return", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonReturn {
					out[i].Headers = core.Headers{}
				}
			}
			return out
		})
	}},
	{
		rule: "C38", name: "limits returns as messages of applications", config: able(func(c *core.Capabilities) { c.MaxHeaderBytes = 4 << 10 }),
		breaks: func() changes {
			return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					if out[i].Reason == core.ReasonReturn {
						out[i].Reason = core.ReasonApplication
					}
				}
				return next(ctx, out...)
			}}
		},
	},
	{rule: "C38", name: "drops a return as a duplicate of its message", breaks: deduplicates(func(o *core.Outgoing) string {
		if o.Reason == core.ReasonApplication || o.Reason == core.ReasonReturn {
			return o.ID
		}
		return ""
	})},
	{rule: "C38", name: "drops a return as a duplicate of the failed copy", breaks: deduplicates(func(o *core.Outgoing) string {
		if o.Reason == core.ReasonApplication {
			return "application " + o.ID
		}
		return o.ID
	})},
	{rule: "C38", name: "delivers a return that is sent again", breaks: deduplicates(func(o *core.Outgoing) string {
		if o.Reason == core.ReasonApplication {
			return o.ID
		}
		return ""
	})},
	{rule: "C38", name: "drops returns without an id", breaks: deduplicates(func(o *core.Outgoing) string {
		switch o.Reason {
		case core.ReasonApplication:
			return o.ID
		case core.ReasonReturn:
			return "return " + o.Headers.Get(headers.RetryUniqueMessageID)
		default:
			return ""
		}
	})},
	{rule: "C38", name: "cuts off the id of a return", breaks: deduplicates(func(o *core.Outgoing) string {
		id := deduplicationID(o)
		return id[:min(len(id), 128)]
	})},
}

// deduplicates gives messages other ids for the detection of duplicates.
func deduplicates(id func(o *core.Outgoing) string) func() changes {
	return func() changes { return changes{deduplicationID: id} }
}

// deduplicationID returns the id by which the suite's own queues find duplicates; "": none.
func deduplicationID(o *core.Outgoing) string {
	unique := o.Headers.Get(headers.RetryUniqueMessageID)
	switch {
	case o.Reason == core.ReasonApplication:
		return o.ID
	case o.Reason == core.ReasonReturn && unique != "":
		return "return " + unique
	default:
		return ""
	}
}

// withoutDuplicates returns the messages that the suite's own queues do not drop.
func (f *suiteFixture) withoutDuplicates(out []core.Outgoing, id func(o *core.Outgoing) string) []core.Outgoing {
	if f == nil {
		return out
	}
	if id == nil {
		id = deduplicationID
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []core.Outgoing
	for i := range out {
		known := f.deduplicating[out[i].Queue]
		if text := id(&out[i]); known != nil && text != "" {
			if known[text] {
				continue
			}
			known[text] = true
		}
		left = append(left, out[i])
	}
	return left
}
