package conformance

import (
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// refusingCopies holds the engine's copies with these reasons against its limit.
func refusingCopies(reasons ...core.SendReason) changes {
	return failingSends(func(out []core.Outgoing) error {
		for _, o := range out {
			if size := len(o.Body) + o.Headers.Bytes(); size > lowLimit && slices.Contains(reasons, o.Reason) {
				return refusingAll(out, &core.TooLargeError{Limit: "MaxMessageBytes", Max: lowLimit, Size: size})
			}
		}
		return nil
	})
}

var lowerLimitMutants = []mutant{
	{rule: "C10", name: "holds the engine's copies against its limits", breaks: func() changes { return refusingCopies(engineCopies...) }},
	{rule: "C10", name: "holds audit copies against its limits", breaks: func() changes { return refusingCopies(core.ReasonAudit) }},
	{rule: "C10", name: "lets forwarded messages exceed its limits", breaks: mends(func(m *core.Outgoing) {
		if m.Reason == core.ReasonForward {
			m.Reason = core.ReasonNewCopy
		}
	})},
	{rule: "R24", name: "holds what it moves to the error queue against its limits", breaks: func() changes {
		return refusingCopies(core.ReasonMoveToError, core.ReasonUndelivered)
	}},
	{rule: "R24", name: "holds delayed retries against its limits", on: inmemory.Config{}, breaks: func() changes { return refusingCopies(core.ReasonDelayedRetry) }},
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
