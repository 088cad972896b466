package queues

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/policy"
)

// settings are a queue's attributes, parsed.
type settings struct {
	visibility, delay, retention, wait time.Duration
	maxSize                            int
	contentDeduplication               bool
	deduplicatePerGroup                bool
	redrivePolicy                      *redrivePolicy
	redriveAllowPolicy                 *redriveAllowPolicy
	policy                             *policy.Policy
}

// A number is an attribute that is an integer.
type number struct{ min, max, standard int }

var numbers = map[string]number{
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, api.MaxMessageSize, api.MaxMessageSize},
	"MessageRetentionPeriod":        {60, 1209600, 345600},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	"VisibilityTimeout":             {0, 43200, 30},
}

// choices are the attributes that have one of some values; the first is the default.
var choices = map[string][]string{
	"ContentBasedDeduplication": {"false", "true"},
	"DeduplicationScope":        {"queue", "messageGroup"},
	"FifoThroughputLimit":       {"perQueue", "perMessageGroupId"},
	"SqsManagedSseEnabled":      {"true", "false"},
}

var onlyFIFO = []string{"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}

// readOnly are the attributes that can only be read.
var readOnly = []string{
	"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible",
	"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn",
}

func unknownAttribute(name string) *api.Error {
	return api.Failure("InvalidAttributeName", "Unknown Attribute %s.", name)
}

func invalidAttribute(name, reason string) *api.Error {
	if reason != "" {
		reason = " Reason: " + reason
	}
	return api.Failure("InvalidAttributeValue", "Invalid value for the parameter %s.%s", name, reason)
}

// changeAttributesLocked returns a queue's attributes after a change, and the resulting
// settings. before is empty for a new queue.
func (st *Store) changeAttributesLocked(name string, fifo bool, before, change map[string]string) (map[string]string, settings, *api.Error) {
	after := map[string]string{}
	for k, n := range numbers {
		after[k] = strconv.Itoa(n.standard)
	}
	for k, c := range choices {
		if fifo || !slices.Contains(onlyFIFO, k) {
			after[k] = c[0]
		}
	}
	maps.Copy(after, before)
	for _, k := range slices.Sorted(maps.Keys(change)) {
		if err := checkAttribute(k, change[k], fifo); err != nil {
			return nil, settings{}, err
		}
		after[k] = change[k]
	}
	if change["KmsMasterKeyId"] != "" {
		if change["SqsManagedSseEnabled"] == "true" {
			return nil, settings{}, api.Failure("InvalidAttributeName", "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
		}
		after["SqsManagedSseEnabled"] = "false"
	} else if change["SqsManagedSseEnabled"] == "true" && before["KmsMasterKeyId"] != "" {
		return nil, settings{}, api.Failure("InvalidAttributeName", "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
	}
	if after["FifoThroughputLimit"] == "perMessageGroupId" && after["DeduplicationScope"] != "messageGroup" {
		return nil, settings{}, invalidAttribute("FifoThroughputLimit", "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup.")
	}
	for _, k := range []string{"Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId"} {
		if after[k] == "" {
			delete(after, k) // the empty string removes them
		}
	}
	if after["KmsMasterKeyId"] == "" {
		delete(after, "KmsDataKeyReusePeriodSeconds")
	} else if after["KmsDataKeyReusePeriodSeconds"] == "" {
		after["KmsDataKeyReusePeriodSeconds"] = "300"
	}
	if _, changed := change["RedrivePolicy"]; changed {
		if _, err := st.parseRedrivePolicyLocked(after["RedrivePolicy"], name, fifo); err != nil {
			return nil, settings{}, err
		}
	}
	s, err := st.parseSettings(after)
	return after, s, err
}

func checkAttribute(name, value string, fifo bool) *api.Error {
	if n, ok := numbers[name]; ok {
		if i, err := strconv.Atoi(value); err != nil || i < n.min || i > n.max {
			return invalidAttribute(name, "")
		}
		return nil
	}
	if c, ok := choices[name]; ok {
		switch {
		case !fifo && name == "ContentBasedDeduplication":
			return unknownAttribute(name)
		case !fifo && slices.Contains(onlyFIFO, name):
			return api.Failure("InvalidAttributeName", "You can specify the %s only when FifoQueue is set to true.", name)
		case !slices.Contains(c, value):
			return invalidAttribute(name, "")
		}
		return nil
	}
	switch name {
	case "FifoQueue":
		// CreateQueue removes it before.
		if fifo {
			return invalidAttribute(name, "Modifying queue type is not supported.")
		}
		return unknownAttribute(name)
	case "KmsDataKeyReusePeriodSeconds":
		if i, err := strconv.Atoi(value); err != nil || i < 60 || i > 86400 {
			return invalidAttribute(name, "")
		}
	case "Policy":
		if _, ok := policy.Parse(value); !ok {
			return invalidAttribute(name, "")
		}
	case "RedrivePolicy", "KmsMasterKeyId":
	case "RedriveAllowPolicy":
		if _, err := parseRedriveAllowPolicy(value); err != nil {
			return err
		}
	default:
		return unknownAttribute(name)
	}
	return nil
}

// parseSettings parses attributes that were checked. The dead-letter queue may have been
// deleted since.
func (st *Store) parseSettings(attributes map[string]string) (s settings, _ *api.Error) {
	integer := func(name string) int {
		i, _ := strconv.Atoi(attributes[name]) // was checked
		return i
	}
	s.delay = clock.Seconds(integer("DelaySeconds"))
	s.maxSize = integer("MaximumMessageSize")
	s.retention = clock.Seconds(integer("MessageRetentionPeriod"))
	s.wait = clock.Seconds(integer("ReceiveMessageWaitTimeSeconds"))
	s.visibility = clock.Seconds(integer("VisibilityTimeout"))
	s.contentDeduplication = attributes["ContentBasedDeduplication"] == "true"
	s.deduplicatePerGroup = attributes["DeduplicationScope"] == "messageGroup"
	if text := attributes["RedrivePolicy"]; text != "" {
		var raw struct {
			Target      string      `json:"deadLetterTargetArn"`
			MaxReceives json.Number `json:"maxReceiveCount"` // takes a number in quotes, too
		}
		if err := json.Unmarshal([]byte(text), &raw); err != nil {
			return s, api.InvalidParameter("Value %s for parameter RedrivePolicy is invalid.", text)
		}
		maxReceives, _ := strconv.Atoi(raw.MaxReceives.String()) // was checked
		s.redrivePolicy = &redrivePolicy{raw.Target, maxReceives}
	}
	var err *api.Error
	if s.redriveAllowPolicy, err = parseRedriveAllowPolicy(attributes["RedriveAllowPolicy"]); err != nil {
		return s, err
	}
	var ok bool
	if s.policy, ok = policy.Parse(attributes["Policy"]); !ok {
		return s, invalidAttribute("Policy", "")
	}
	return s, nil
}

// readAttributes returns the attributes that GetQueueAttributes asks for.
func (q *queue) readAttributes(names []string) (map[string]string, *api.Error) {
	all := map[string]string{
		"ApproximateNumberOfMessages":           strconv.Itoa(q.count[ready]),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(q.count[delayed]),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(q.count[inFlight]),
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Seconds(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Seconds(), 10),
		"QueueArn":                              q.arn,
	}
	maps.Copy(all, q.attributes)
	if q.fifo {
		all["FifoQueue"] = "true"
	}
	chosen := map[string]string{}
	for _, name := range names {
		if name == "All" {
			return all, nil
		}
		if v, ok := all[name]; ok {
			chosen[name] = v
		} else if !isAttribute(name) {
			return nil, unknownAttribute(name)
		}
	}
	return chosen, nil
}

func isAttribute(name string) bool {
	_, isNumber := numbers[name]
	_, isChoice := choices[name]
	return isNumber || isChoice || slices.Contains(readOnly, name) ||
		slices.Contains([]string{"FifoQueue", "KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "Policy", "RedrivePolicy", "RedriveAllowPolicy"}, name)
}

// differing returns an attribute that CreateQueue names with another value than an existing
// queue has, or "".
func (q *queue) differing(given map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(given)) {
		if have := q.attributes[k]; have != given[k] && !api.SameJSON(have, given[k]) {
			return k
		}
	}
	return ""
}
