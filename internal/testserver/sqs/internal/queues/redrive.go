package queues

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// A redrivePolicy moves messages that were received too often to a dead-letter queue.
type redrivePolicy struct {
	target      string // ARN
	maxReceives int    // receives
}

// A redriveAllowPolicy restricts the queues that may use a queue as their dead-letter queue.
type redriveAllowPolicy struct {
	permission string // allowAll, denyAll or byQueue
	sources    []string
}

// redriveLocked moves a ready message to the dead-letter queue if it was received as often as
// the queue's redrive policy allows, and reports whether it did. As in the service, that
// happens when the message would otherwise be received again.
func (st *Store) redriveLocked(q *queue, m *message, now clock.Instant) bool {
	if q.redrivePolicy == nil || m.here < q.redrivePolicy.maxReceives {
		return false
	}
	target := st.queueByARNLocked(q.redrivePolicy.target)
	if target == nil || target == q {
		return false
	}
	q.remove(m)
	st.logRemoveLocked(q, m, now)
	moved := *m
	moved.source, moved.here = q.arn, 0
	if target.fifo {
		// In a standard queue the retention period goes on:
		// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
		moved.enqueued = now
		// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
		moved.deduplication = m.ID
	}
	moved.due = now.Add(target.delay)
	st.serial++
	moved.serial, moved.order = st.serial, st.serial
	if target.fifo {
		moved.sequence = sequenceNumber(moved.serial)
	}
	st.enterLocked(target, &moved, now)
	st.touchLocked(target)
	return true
}

// parseRedrivePolicyLocked returns the policy that a queue's attribute RedrivePolicy holds.
// "" is none.
func (st *Store) parseRedrivePolicyLocked(text, name string, fifo bool) (*redrivePolicy, *api.Error) {
	if text == "" {
		return nil, nil
	}
	wrong := func(reason string) (*redrivePolicy, *api.Error) {
		return nil, api.InvalidParameter("Value %s for parameter RedrivePolicy is invalid. Reason: %s", text, reason)
	}
	var raw struct {
		Target      *string         `json:"deadLetterTargetArn"`
		MaxReceives json.RawMessage `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return wrong("Redrive policy is not a valid JSON map.")
	}
	if raw.Target == nil {
		return wrong("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	if raw.MaxReceives == nil {
		return wrong("Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	maxReceives, err := strconv.Atoi(strings.Trim(string(raw.MaxReceives), `"`)) // the service accepts both
	if err != nil || maxReceives < 1 || maxReceives > 1000 {
		return wrong("Invalid value for maxReceiveCount: " + strings.Trim(string(raw.MaxReceives), `"`) + ", valid values are from 1 to 1000 both inclusive.")
	}
	if strings.Count(*raw.Target, ":") != 5 || !strings.HasPrefix(*raw.Target, "arn:") {
		return wrong("Invalid value for deadLetterTargetArn.")
	}
	target := st.queueByARNLocked(*raw.Target)
	switch {
	case target == nil:
		return wrong("Dead letter target does not exist.")
	case target.fifo != fifo:
		return wrong("Dead-letter queue must be same type of queue as the source.")
	case !target.allows(st.QueueARN(name)):
		return wrong("Dead letter target does not allow the source queue in its redrive allow policy.")
	}
	return &redrivePolicy{*raw.Target, maxReceives}, nil
}

// allows reports whether a queue's redrive allow policy lets another one name it as its
// dead-letter queue.
func (q *queue) allows(source string) bool {
	switch p := q.redriveAllowPolicy; {
	case p == nil, p.permission == "allowAll":
		return true
	case p.permission == "byQueue":
		return slices.Contains(p.sources, source)
	default:
		return false
	}
}

func parseRedriveAllowPolicy(text string) (*redriveAllowPolicy, *api.Error) {
	if text == "" {
		return nil, nil
	}
	wrong := func(reason string) (*redriveAllowPolicy, *api.Error) {
		return nil, api.InvalidParameter("Value %s for parameter RedriveAllowPolicy is invalid. Reason: %s", text, reason)
	}
	var raw struct {
		Permission string   `json:"redrivePermission"`
		Sources    []string `json:"sourceQueueArns"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return wrong("Redrive allow policy is not a valid JSON map.")
	}
	switch raw.Permission {
	case "allowAll", "denyAll":
		if raw.Sources != nil {
			return wrong("sourceQueueArns can be specified only when redrivePermission is byQueue.")
		}
	case "byQueue":
		if len(raw.Sources) < 1 || len(raw.Sources) > 10 {
			return wrong("sourceQueueArns must have between 1 and 10 queues.")
		}
	default:
		return wrong("redrivePermission must be allowAll, denyAll or byQueue.")
	}
	return &redriveAllowPolicy{raw.Permission, raw.Sources}, nil
}

// isDeadLetterQueueLocked reports whether any queue names this one in its redrive policy.
func (st *Store) isDeadLetterQueueLocked(q *queue) bool { return len(st.sourcesOfLocked(q)) > 0 }

// sourcesOfLocked returns the queues that name this one in their redrive policies, by name.
func (st *Store) sourcesOfLocked(target *queue) (sources []*queue) {
	for _, q := range st.queues {
		if q.redrivePolicy != nil && q.redrivePolicy.target == target.arn {
			sources = append(sources, q)
		}
	}
	slices.SortFunc(sources, func(a, b *queue) int { return strings.Compare(a.name, b.name) })
	return sources
}
