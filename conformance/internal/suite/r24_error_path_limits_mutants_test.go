package suite

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var limited = able(func(c *core.Capabilities) { c.MaxMessageBytes, c.MaxHeaderBytes = 256<<10, 64<<10 })

// storesCause keeps the cause of an Abandon where not every text fits.
func storesCause(fits func(text string) bool) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Abandon" && !fits(d.cause.Error()) {
			return errors.New("the value does not fit the column last_error")
		}
		return next()
	}}
}

var errorPathLimitMutants = []mutant{
	{rule: "R24", name: "keeps the cause of an Abandon in a short column", breaks: func() changes {
		return storesCause(func(text string) bool { return len(text) <= 4000 })
	}},
	{rule: "R24", name: "keeps the cause of an Abandon in a column of UTF-8 text", breaks: func() changes {
		return storesCause(func(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") })
	}},
	{rule: "R24", name: "takes no header above 4 KiB, and does not say so", breaks: func() changes {
		return failingSends(func(out []core.Outgoing) error {
			for _, o := range out {
				for _, value := range o.Headers.All() {
					if len(value) > 4<<10 {
						return refusingAll(out, &core.TooLargeError{Limit: "header", Max: 4 << 10, Size: len(value)})
					}
				}
			}
			return nil
		})
	}},
	{rule: "R24", name: "carries headers in ASCII", breaks: func() changes {
		return cutsHeaders(func(value string) string {
			return strings.Map(func(r rune) rune {
				if r >= utf8.RuneSelf {
					return '?'
				}
				return r
			}, value)
		})
	}},
	{rule: "R24", name: "sends bodies in base64, and claims the limit of its broker", config: limited, breaks: func() changes {
		return failingSends(func(out []core.Outgoing) error {
			for _, o := range out {
				if size := len(o.Body)*4/3 + o.Headers.Bytes(); size > 256<<10 {
					return refusingAll(out, &core.TooLargeError{Limit: "MaxMessageBytes", Max: 256 << 10, Size: size})
				}
			}
			return nil
		})
	}},
	{rule: "R24", name: "does not say that a message is too large", config: limited, breaks: func() changes {
		return failingSends(func(out []core.Outgoing) error {
			for _, o := range out {
				if o.Headers.Bytes() > 64<<10 || len(o.Body)+o.Headers.Bytes() > 256<<10 {
					return refusingAll(out, errors.New("status 413"))
				}
			}
			return nil
		})
	}},
	{rule: "R24", name: "cuts off large bodies", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				out[i].Body = out[i].Body[:min(len(out[i].Body), 1<<20-1)]
			}
			return out
		})
	}},
	{rule: "R24", name: "applies its limits to messages for the error queue", breaks: func() changes {
		return refusingCopies(core.ReasonMoveToError, core.ReasonUndelivered)
	}},
	{rule: "R24", name: "holds delayed retries against its limits", config: inmemory.Config{}, breaks: func() changes { return refusingCopies(core.ReasonDelayedRetry) }},
	{rule: "R24", name: "cuts the copies that it sends to its limit", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason.IsCopy() {
					out[i].Body = out[i].Body[:min(len(out[i].Body), lowLimit)]
				}
			}
			return out
		})
	}},
}
