package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// onRedelivery is a transport that changes redelivered messages, after the
// given operation or, for "", after any.
func onRedelivery(operation string, change func(in *core.Incoming)) func() changes {
	return func() changes {
		var mu sync.Mutex
		changed := map[string]bool{}
		return changes{
			settle: func(d *brokenDelivery, op string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if op == operation {
					changed[d.in.NativeID] = true
				}
				return next()
			},
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				mu.Lock()
				defer mu.Unlock()
				if changed[in.NativeID] || operation == "" && in.Redelivered {
					change(in)
				}
			},
		}
	}
}

var redeliveryMutants = []mutant{
	{rule: "C11", name: "writes a failure into the message that it gives back", breaks: onRedelivery("Abandon", func(in *core.Incoming) { in.Headers.Set("x-death", "rejected") })},
	{rule: "C11", name: "sends an empty body when it releases a message", breaks: onRedelivery("Release", func(in *core.Incoming) { in.Body = nil })},
	{rule: "C11", name: "marks redelivered messages in a header", breaks: onRedelivery("", func(in *core.Incoming) { in.Headers.Set("Redelivered", "true") })},
	{rule: "C11", name: "gives a message another native id at each delivery", breaks: func() changes {
		var tag atomic.Int64
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.NativeID = fmt.Sprint(tag.Add(1)) }}
	}},
	{rule: "C11", name: "numbers the messages of each receiver from 1", breaks: func() changes {
		var mu sync.Mutex
		tags := map[*brokenReceiver]int{}
		return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			tags[r]++
			in.NativeID = fmt.Sprint(tags[r])
		}}
	}},
	{rule: "C11", name: "names a stored copy by its message's id", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.NativeID = in.ID }}
	}},
	{rule: "C11", name: "names a stored copy of another program's message by its content", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			if in.Native != nil {
				in.NativeID = "hash of " + string(in.Body)
			}
		}}
	}},
	{rule: "C11", name: "has no native ids", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.NativeID = "" }}
	}},
	{rule: "C11", name: "reads every body into one buffer", breaks: func() changes {
		var mu sync.Mutex
		buffers := map[*brokenReceiver][]byte{}
		return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			buffers[r] = append(buffers[r][:0], in.Body...)
			in.Body = buffers[r]
		}}
	}},
	{rule: "C11", name: "reuses the message of a delivery that was settled", breaks: func() changes {
		var mu sync.Mutex
		free := map[*brokenReceiver][]*brokenDelivery{}
		return changes{
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				free[d.receiver] = append(free[d.receiver], d)
				return next()
			},
			arrive: func(r *brokenReceiver, in *core.Incoming) {
				mu.Lock()
				defer mu.Unlock()
				if list := free[r]; len(list) > 0 {
					list[0].in = *in
					free[r] = list[1:]
				}
			},
		}
	}},
	{rule: "C11", name: "encodes the headers after Send returned", breaks: func() changes {
		return buffering(func(out []core.Outgoing) []core.Outgoing { return out })
	}},
	{rule: "C11", name: "takes the bodies of a batch from one place", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Body = out[0].Body
			}
			return next(ctx, out...)
		}}
	}},
}
