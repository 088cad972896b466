package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// stored is the JSON of a message in an entry. Times are absolute: a message that is sent
// again has the same due time as at first.
type stored struct {
	ID         string            `json:"id"`
	Queue      string            `json:"queue,omitempty"`
	Topic      string            `json:"topic,omitempty"`
	BaseTopics []string          `json:"baseTopics,omitempty"`
	Headers    [][2]string       `json:"headers,omitempty"` // in the message's order
	Body       []byte            `json:"body,omitempty"`    // base64
	Due        *time.Time        `json:"due,omitempty"`
	Expires    *time.Time        `json:"expires,omitempty"`
	GroupKey   string            `json:"groupKey,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Forward    bool              `json:"forward,omitempty"`
}

// encode returns messages as bytes for an entry, or nil if there are none.
func encode(out []core.Outgoing, now time.Time) ([]byte, error) {
	if len(out) == 0 {
		return nil, nil
	}
	all := make([]stored, len(out))
	for i := range out {
		o := &out[i]
		s := stored{
			ID: o.ID, Queue: o.Queue, Topic: o.Topic, BaseTopics: o.BaseTopics, Body: o.Body,
			GroupKey: o.GroupKey, Properties: o.Properties, Forward: o.Reason == core.ReasonForward,
		}
		s.Headers = make([][2]string, 0, o.Headers.Len())
		for key, value := range o.Headers.All() {
			s.Headers = append(s.Headers, [2]string{key, value})
		}
		if o.Delay > 0 {
			s.Due = at(now, o.Delay)
			if due, err := headers.ParseTime(o.Headers.Get(headers.DeliverAt)); err == nil {
				s.Due = &due // the exact time: the delay was set a while ago
			}
		}
		if o.TimeToBeReceived > 0 {
			s.Expires = at(now, o.TimeToBeReceived)
		}
		all[i] = s
	}
	encoded, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode the messages to send: %w", err)
	}
	return encoded, nil
}

func at(now time.Time, d time.Duration) *time.Time {
	t := now.Add(d)
	return &t
}

// decode returns the messages of an entry that have not expired.
func decode(encoded []byte, now time.Time) ([]core.Outgoing, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	var all []stored
	if err := json.Unmarshal(encoded, &all); err != nil {
		return nil, fmt.Errorf("decode the messages that were stored to be sent: %w", err)
	}
	out := make([]core.Outgoing, 0, len(all))
	for i := range all {
		s := &all[i]
		o := core.Outgoing{ID: s.ID, Queue: s.Queue, Topic: s.Topic, BaseTopics: s.BaseTopics, Body: s.Body, GroupKey: s.GroupKey, Properties: s.Properties}
		if o.ID == "" {
			return nil, errors.New("decode the messages that were stored to be sent: one has no id")
		}
		if s.Forward {
			o.Reason = core.ReasonForward
		}
		o.Headers = headersOf(s.Headers)
		if s.Due != nil {
			o.Delay = max(s.Due.Sub(now), 0)
		}
		if s.Expires != nil {
			if o.TimeToBeReceived = s.Expires.Sub(now); o.TimeToBeReceived <= 0 {
				continue // it has expired
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// manyHeaders is about the number from which a map is faster than Headers.Set, which compares
// with every key. A forwarded message can have many thousands.
const manyHeaders = 64

// headersOf returns the headers of a message: in its order, or in that of their keys if there
// are many.
func headersOf(pairs [][2]string) (h core.Headers) {
	if len(pairs) <= manyHeaders {
		h.Grow(len(pairs))
		for _, pair := range pairs {
			h.Set(pair[0], pair[1])
		}
		return h
	}
	m := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		m[pair[0]] = pair[1]
	}
	return core.HeadersFromMap(m)
}
